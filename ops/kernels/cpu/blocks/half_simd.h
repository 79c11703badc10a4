// Between float32 and the 16-bit floats, vectorized for the instruction set of the machine at hand.
// Bit for bit what ToFloat, ToFloat16 and ToBfloat16 give (tensor/dtype.h), on all of them.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_HALF_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_HALF_SIMD_H_

#include <cstddef>

#include "tensor/dtype.h"

namespace weft::cpu {

void WidenHalf(const Float16* x, float* out, size_t n);
void WidenHalf(const Bfloat16* x, float* out, size_t n);
void NarrowToHalf(const float* x, Float16* out, size_t n);
void NarrowToHalf(const float* x, Bfloat16* out, size_t n);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_HALF_SIMD_H_
