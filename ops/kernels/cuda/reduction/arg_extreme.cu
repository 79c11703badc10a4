#include "ops/kernels/cuda/blocks/fold_launch.h"
#include "ops/kernels/cuda/blocks/line_launch.h"
#include "ops/kernels/cuda/reduction/arg_extreme_body.h"
#include "ops/kernels/cuda/reduction/arg_extreme_launch.h"
#include "ops/kernels/cuda/reduction/top_k_body.h"

namespace weft::cuda {

template <typename T>
int LaunchArgExtreme(LaunchQueue queue, const FoldLaunch& fold, bool smallest, bool last,
                     const T* x, int64_t* y, void* workspace) {
  return LaunchFold(queue, fold, ArgSource<T>{x, y, smallest ? 1 : 0, last ? 1 : 0}, workspace);
}

template <typename T>
int LaunchHardmax(LaunchQueue queue, const LineLaunch& line, const T* x, T* y) {
  return LaunchLines(queue, line, HardmaxSource<T>{x, y});
}

template <typename T>
int LaunchTopK(LaunchQueue queue, const TopKPlan& plan, const T* x, T* values, int64_t* positions) {
  const TopKOperands<T> operands{x, values, positions, plan};
  const LaunchGrid grid = {.blocks = plan.lines, .threads = kTopKThreads};
  if (plan.size > kTopKSorted) {
    return Launch<kTopKThreads>(queue, grid, TopKSelectBody<T>{operands});
  }
  int padded = 2;
  while (padded < plan.size) padded *= 2;
  return Launch<kTopKThreads>(queue, grid, TopKSortBody<T>{operands, padded});
}

#define WEFT_ARG_EXTREME(T)                                                                     \
  template int LaunchArgExtreme(LaunchQueue, const FoldLaunch&, bool, bool, const T*, int64_t*, \
                                void*);                                                         \
  template int LaunchTopK(LaunchQueue, const TopKPlan&, const T*, T*, int64_t*)
WEFT_ARG_EXTREME(float);
WEFT_ARG_EXTREME(double);
WEFT_ARG_EXTREME(Float16);
WEFT_ARG_EXTREME(Bfloat16);
WEFT_ARG_EXTREME(int8_t);
WEFT_ARG_EXTREME(int16_t);
WEFT_ARG_EXTREME(int32_t);
WEFT_ARG_EXTREME(int64_t);
WEFT_ARG_EXTREME(uint8_t);
WEFT_ARG_EXTREME(uint16_t);
WEFT_ARG_EXTREME(uint32_t);
WEFT_ARG_EXTREME(uint64_t);
#undef WEFT_ARG_EXTREME
template int LaunchHardmax(LaunchQueue, const LineLaunch&, const float*, float*);
template int LaunchHardmax(LaunchQueue, const LineLaunch&, const double*, double*);
template int LaunchHardmax(LaunchQueue, const LineLaunch&, const Float16*, Float16*);
template int LaunchHardmax(LaunchQueue, const LineLaunch&, const Bfloat16*, Bfloat16*);

}  // namespace weft::cuda
