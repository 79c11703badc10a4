// Launches the reductions. T: float, double, Float16, Bfloat16 and the whole numbers; of extremes,
// bool too.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_REDUCE_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_REDUCE_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/blocks/fold_layout.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

// What is done with a total, in double: divided, its root or logarithm taken.
enum class FinishKind : uint8_t { kDivide, kRoot, kLog };
struct ReduceFinish {
  FinishKind kind = FinishKind::kDivide;
  double divisor = 1;
};

// What is folded: x, |x|, x^2, ...
enum class ReduceKind : uint8_t {
  kSum,
  kMagnitudes,
  kSquares,
  kProduct,
  kLargest,
  kSmallest,
  kLogSumExp,
};

// Bytes of the largest Total.
inline constexpr size_t kReduceTotalBytes = 16;

// Folds x to y. `workspace`: FoldPlan::workspace_bytes(kReduceTotalBytes). 0, or CUDA's error
// number. Packets are those of ReduceWidth.
template <typename T>
int LaunchReduce(LaunchQueue queue, ReduceKind kind, const FoldLaunch& fold,
                 const ReduceFinish& finish, const T* x, T* y, void* workspace);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_REDUCE_LAUNCH_H_
