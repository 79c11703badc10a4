// Reductions of floats.
#include "ops/kernels/cuda/blocks/fold_launch.h"
#include "ops/kernels/cuda/reduction/reduce_body.h"
#include "ops/kernels/cuda/reduction/reduce_launch.h"

namespace weft::cuda {

template <typename T>
int LaunchReduce(LaunchQueue queue, ReduceKind kind, const FoldLaunch& fold,
                 const ReduceFinish& finish, const T* x, T* y, void* workspace) {
  const auto launch = [&]<class Reducer>(Reducer) {
    return LaunchFold(queue, fold, ReduceSource<T, Reducer>{x, y, finish}, workspace);
  };
  switch (kind) {
    case ReduceKind::kSum:
      return launch(SumReducer<T, Itself>{});
    case ReduceKind::kMagnitudes:
      return launch(SumReducer<T, Magnitude>{});
    case ReduceKind::kSquares:
      return launch(SumReducer<T, Squared>{});
    case ReduceKind::kProduct:
      return launch(ProductReducer<T>{});
    case ReduceKind::kLargest:
      return launch(ExtremeReducer<T, false>{});
    case ReduceKind::kSmallest:
      return launch(ExtremeReducer<T, true>{});
    case ReduceKind::kLogSumExp:
      return launch(LogSumExpReducer<T>{});
  }
  return 0;
}

template int LaunchReduce(LaunchQueue, ReduceKind, const FoldLaunch&, const ReduceFinish&,
                          const float*, float*, void*);
template int LaunchReduce(LaunchQueue, ReduceKind, const FoldLaunch&, const ReduceFinish&,
                          const double*, double*, void*);
template int LaunchReduce(LaunchQueue, ReduceKind, const FoldLaunch&, const ReduceFinish&,
                          const Float16*, Float16*, void*);
template int LaunchReduce(LaunchQueue, ReduceKind, const FoldLaunch&, const ReduceFinish&,
                          const Bfloat16*, Bfloat16*, void*);

}  // namespace weft::cuda
