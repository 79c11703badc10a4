// Vector code for the commonest pool: windows of two by two side by side, without padding.
#ifndef WEFT_OPS_KERNELS_CPU_POOL_POOL_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_POOL_POOL_SIMD_H_

#include <cstdint>

namespace weft::cpu {

// One plane. Row h of the output belongs to rows 2 h and 2 h + 1 of the input, and likewise
// columns; the input may have one more of each.
struct TwoByTwoPlane {
  int64_t input_columns = 0;
  int64_t output_rows = 0;
  int64_t output_columns = 0;
};

// y = the largest of each window; NaN wins.
void MaxOfTwoByTwo(const TwoByTwoPlane& plane, const float* x, float* y);

// dx = dy at the first element of each window that equals y (at the last when none does), zero at
// the others. Elements in no window are left alone.
void MaxOfTwoByTwoGradient(const TwoByTwoPlane& plane, const float* x, const float* y,
                           const float* dy, float* dx);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_POOL_POOL_SIMD_H_
