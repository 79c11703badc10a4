// Vector loops of float32 pools over whole planes of `size` elements each.
#ifndef WEFT_OPS_KERNELS_CPU_POOL_POOL_GLOBAL_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_POOL_POOL_GLOBAL_SIMD_H_

#include <cstdint>

namespace weft::cpu {

// y[p] = the sum of plane p, in sixteen chains on every instruction set, divided by `size`.
void AverageOfPlanes(const float* x, int64_t planes, int64_t size, float* y);

// y[p] = the first of the largest elements of plane p, the last NaN if there is one; -infinity if
// there are no elements.
void MaxOfPlanes(const float* x, int64_t planes, int64_t size, float* y);

// Each element of plane p of dx = dy[p] / size.
void SpreadOverPlanes(const float* dy, int64_t planes, int64_t size, float* dx);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_POOL_POOL_GLOBAL_SIMD_H_
