// Launches LpNormalization and LRN. T: a floating type.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_ALONG_AXIS_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_ALONG_AXIS_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/line_layout.h"

namespace weft::cuda {

// x / |x| of each line, zeros where it is zero. REQUIRES: !line.in_registers. 0, or CUDA's error
// number.
template <typename T>
int LaunchLpNormalization(LaunchQueue queue, const LineLaunch& line, bool squares, const T* x,
                          T* y);

// [samples, channels, plane]
struct LrnPlan {
  int64_t elements = 0;
  int64_t channels = 0;
  int64_t plane = 0;
  int64_t before = 0;  // channels before and after in the sum
  int64_t after = 0;
  double factor = 0;  // alpha / size
  double beta = 0;
  double bias = 0;
};
template <typename T>
int LaunchLrn(LaunchQueue queue, const LrnPlan& plan, const T* x, T* y);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_ALONG_AXIS_LAUNCH_H_
