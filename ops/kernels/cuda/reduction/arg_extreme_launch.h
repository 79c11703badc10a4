// Launches ArgMax, ArgMin and Hardmax.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_ARG_EXTREME_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_ARG_EXTREME_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/blocks/fold_layout.h"
#include "ops/kernels/cuda/blocks/line_layout.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Elements of a packet of ArgMax and ArgMin: their totals take too many registers for more. Whole
// numbers, of which models seldom ask it, have one kernel for all types.
template <typename T>
inline constexpr int kArgWidth = sizeof(T) == 8 ? 2 : 4;
inline int ArgWidth(DType dtype) {
  return !IsFloatingPoint(dtype)    ? 1
         : dtype == DType::kFloat64 ? kArgWidth<double>
                                    : kArgWidth<float>;
}

// Bytes of a Total.
inline constexpr size_t kArgTotalBytes = 16;

// Positions of the largest or smallest elements, of a number type. 0, or CUDA's error number.
int LaunchArgExtreme(LaunchQueue queue, const FoldLaunch& fold, bool smallest, bool last,
                     DType dtype, const void* x, int64_t* y, void* workspace);

// T: a floating type. REQUIRES: !line.in_registers.
template <typename T>
int LaunchHardmax(LaunchQueue queue, const LineLaunch& line, const T* x, T* y);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_ARG_EXTREME_LAUNCH_H_
