// Matrix products of small whole numbers: 16-bit operands (8-bit ones less their zero points), sums
// in 32 bits that wrap around. Vectorized for the instruction set of the machine at hand.
#ifndef WEFT_OPS_KERNELS_CPU_LINEAR_INTEGER_PRODUCT_H_
#define WEFT_OPS_KERNELS_CPU_LINEAR_INTEGER_PRODUCT_H_

#include <cstdint>

namespace weft::cpu {

// Rows of packed operands have a multiple of this many elements, zeros at the end: every vector
// length divides it.
inline constexpr int64_t kIntegerPadding = 64;
inline int64_t PaddedLength(int64_t k) {
  return (k + kIntegerPadding - 1) / kIntegerPadding * kIntegerPadding;
}

// c[i * c_stride + j] = sum over l < k of a[i * k + l] * b[j * k + l], for i < m and j < n: both
// operands have the summed axis innermost. REQUIRES: k is a PaddedLength.
void IntegerProduct(const int16_t* a, const int16_t* b, int64_t m, int64_t n, int64_t k, int32_t* c,
                    int64_t c_stride);

// out[i] = x[i * stride] - zero for i < n, then zeros up to PaddedLength(n).
void WidenRow(const uint8_t* x, int64_t stride, int32_t zero, int64_t n, int16_t* out);
void WidenRow(const int8_t* x, int64_t stride, int32_t zero, int64_t n, int16_t* out);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_LINEAR_INTEGER_PRODUCT_H_
