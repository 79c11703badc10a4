// The sums of Einsum that are no products. For einsum.cc.
#ifndef WEFT_OPS_KERNELS_CUDA_LINEAR_EINSUM_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_LINEAR_EINSUM_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/axis_index.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// y[o] = the sum of x at kept.Offset(o) + summed.Offset(a) over all a. Whole numbers wrap around.
struct AxisSumCall {
  AxisIndex kept;
  AxisIndex summed;
  int64_t outputs = 0;
  int64_t addends = 0;  // of each
};
// Any number type. 0, or CUDA's error number.
int LaunchAxisSum(LaunchQueue queue, DType dtype, const AxisSumCall& call, const void* x, void* y);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LINEAR_EINSUM_LAUNCH_H_
