// Launches Softmax, LogSoftmax and their gradients. T: a floating type.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_SOFTMAX_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_SOFTMAX_LAUNCH_H_

#include "ops/kernels/cuda/blocks/line_layout.h"

namespace weft::cuda {

// Over lines of x. float64 is not kept in registers. 0, or CUDA's error number.
template <typename T>
int LaunchSoftmax(LaunchQueue queue, const LineLaunch& line, bool log, const T* x, T* y);

// dx of lines of dy and y.
template <typename T>
int LaunchSoftmaxGrad(LaunchQueue queue, const LineLaunch& line, bool log, const T* dy, const T* y,
                      T* dx);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_SOFTMAX_LAUNCH_H_
