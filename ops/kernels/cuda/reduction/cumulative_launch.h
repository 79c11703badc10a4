// Launches CumSum, CumProd and CumProdGrad.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_CUMULATIVE_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_CUMULATIVE_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

inline constexpr int kMaxCumulativeRank = 16;

// The axis is an operand in the device's memory.
struct CumulativePlan {
  IndexInput axis;
  FaultReport report;  // of an axis that there is not
  int64_t sizes[kMaxCumulativeRank] = {};
  int64_t strides[kMaxCumulativeRank] = {};
  int64_t elements = 0;
  int64_t smallest_size = 1;  // of an axis: there are at most elements / smallest_size lines
  int32_t rank = 0;           // a scalar has one axis of one element
  int32_t exclusive = 0;
  int32_t reverse = 0;
};

// T: any number type. 0, or CUDA's error number.
template <typename T>
int LaunchCumulative(LaunchQueue queue, const CumulativePlan& plan, bool product, const T* x, T* y);

// T: a floating type. `sums`: room for as many doubles as there are elements.
template <typename T>
int LaunchCumulativeGrad(LaunchQueue queue, const CumulativePlan& plan, const T* dy, const T* x,
                         T* dx, double* sums);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_CUMULATIVE_LAUNCH_H_
