#include "ops/kernels/cuda/blocks/fold_launch.h"
#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/blocks/line_launch.h"
#include "ops/kernels/cuda/reduction/arg_extreme_body.h"
#include "ops/kernels/cuda/reduction/arg_extreme_launch.h"
#include "ops/kernels/cuda/reduction/top_k_body.h"

namespace weft::cuda {

int LaunchArgExtreme(LaunchQueue queue, const FoldLaunch& fold, bool smallest, bool last,
                     DType dtype, const void* x, int64_t* y, void* workspace) {
  const int32_t is_smallest = smallest ? 1 : 0;
  const int32_t is_last = last ? 1 : 0;
  if (!IsFloatingPoint(dtype)) {
    return LaunchFold(queue, fold, WholeArgSource{x, dtype, y, is_smallest, is_last}, workspace);
  }
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    return LaunchFold(queue, fold, ArgSource<T>{static_cast<const T*>(x), y, is_smallest, is_last},
                      workspace);
  });
}

template <typename T>
int LaunchHardmax(LaunchQueue queue, const LineLaunch& line, const T* x, T* y) {
  return LaunchLines(queue, line, HardmaxSource<T>{x, y});
}

int LaunchTopK(LaunchQueue queue, const TopKPlan& plan, DType dtype, const void* x, void* values,
               int64_t* positions) {
  const TopKOperands operands{x, dtype, values, positions, plan};
  const LaunchGrid grid = {.blocks = plan.lines, .threads = kTopKThreads};
  const auto launch = [&](auto rank) {
    using Rank = decltype(rank);
    if (plan.size > kTopKSorted) {
      return Launch<kTopKThreads>(queue, grid, TopKSelectBody<Rank>{operands});
    }
    int log_padded = 1;
    while ((int64_t{1} << log_padded) < plan.size) ++log_padded;
    return Launch<kTopKThreads>(queue, grid, TopKSortBody<Rank>{operands, log_padded});
  };
  return IsFloatingPoint(dtype) ? launch(double{}) : launch(int64_t{});
}

template int LaunchHardmax(LaunchQueue, const LineLaunch&, const float*, float*);
template int LaunchHardmax(LaunchQueue, const LineLaunch&, const double*, double*);
template int LaunchHardmax(LaunchQueue, const LineLaunch&, const Float16*, Float16*);
template int LaunchHardmax(LaunchQueue, const LineLaunch&, const Bfloat16*, Bfloat16*);

}  // namespace weft::cuda
