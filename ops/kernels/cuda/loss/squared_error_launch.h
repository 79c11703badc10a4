// Launches SquaredErrorSum, MeanSquaredError and their gradient. T: a floating type.
#ifndef WEFT_OPS_KERNELS_CUDA_LOSS_SQUARED_ERROR_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_LOSS_SQUARED_ERROR_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/blocks/fold_layout.h"

namespace weft::cuda {

// Bytes of a Total.
inline constexpr size_t kSquaredErrorTotalBytes = 8;

// The sum of (a - b)^2, divided. 0, or CUDA's error number.
template <typename T>
int LaunchSquaredError(LaunchQueue queue, const FoldLaunch& fold, double divisor, const T* a,
                       const T* b, T* y, void* workspace);

// 2 dy (a - b). `packed`: `elements` are whole packets of 16 bytes, at multiples of that.
template <typename T>
int LaunchSquaredErrorGrad(LaunchQueue queue, int64_t elements, bool packed, const T* dy,
                           const T* a, const T* b, T* da);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LOSS_SQUARED_ERROR_LAUNCH_H_
