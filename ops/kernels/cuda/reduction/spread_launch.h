// Launches BroadcastReduced and ElementCount. T: any number type.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_SPREAD_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_SPREAD_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/axis_index.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

struct SpreadPlan {
  AxisIndex index;  // where a packet of the output comes from
  int64_t packets = 0;
  double divisor = 1;
  int32_t repeats = 0;  // a packet's elements come from one element
  int32_t width = 1;    // elements of a packet: 1, or 16 bytes of floats
};

// 0, or CUDA's error number.
template <typename T>
int LaunchSpread(LaunchQueue queue, const SpreadPlan& plan, const T* small, T* big);

// *y = value
template <typename T>
int LaunchConstant(LaunchQueue queue, int64_t value, T* y);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_SPREAD_LAUNCH_H_
