// Between float32 and 8-bit numbers, vectorized for the instruction set of the machine at hand.
#ifndef WEFT_OPS_KERNELS_CPU_QUANTIZED_QUANTIZE_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_QUANTIZED_QUANTIZE_SIMD_H_

#include <cstddef>
#include <cstdint>

namespace weft::cpu {

// out[i] = round(x[i] / scale) + zero, halves to even, cut to the range of the type. NaN gives the
// lower end.
void QuantizeFloat(const float* x, float scale, float zero, uint8_t* out, size_t n);
void QuantizeFloat(const float* x, float scale, float zero, int8_t* out, size_t n);

// out[i] = (x[i] - zero) * scale
void DequantizeToFloat(const uint8_t* x, float scale, float zero, float* out, size_t n);
void DequantizeToFloat(const int8_t* x, float scale, float zero, float* out, size_t n);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_QUANTIZED_QUANTIZE_SIMD_H_
