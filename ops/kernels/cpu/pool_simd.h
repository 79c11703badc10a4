// Vector code for the commonest pool: windows of two columns side by side.
#ifndef WEFT_OPS_KERNELS_CPU_POOL_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_POOL_SIMD_H_

#include <cstdint>

namespace weft::cpu {

// y[i] = the largest of y[i], x[2 i], x[2 i + 1], for i < count; NaN wins and stays.
void MaxOfPairs(const float* x, int64_t count, float* y);

// The gradient of a window of two rows by two columns: dy[i] goes to the first of top[2 i],
// top[2 i + 1], bottom[2 i], bottom[2 i + 1] that equals y[i] (to the last when none does), and the
// others of dtop and dbottom become zero.
void MaxOfPairsGradient(const float* top, const float* bottom, const float* y, const float* dy,
                        int64_t count, float* dtop, float* dbottom);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_POOL_SIMD_H_
