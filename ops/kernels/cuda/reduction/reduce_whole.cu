// Reductions of whole numbers and bool.
#include "ops/kernels/cuda/blocks/fold_launch.h"
#include "ops/kernels/cuda/reduction/reduce_body.h"
#include "ops/kernels/cuda/reduction/reduce_launch.h"

namespace weft::cuda {

template <typename T>
int LaunchReduce(LaunchQueue queue, ReduceKind kind, const FoldLaunch& fold,
                 const ReduceFinish& finish, const T* x, T* y, void* workspace) {
  // One kernel for all types with a sign, and one for all others.
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  const auto launch = [&]<class Reducer>(Reducer) {
    return LaunchFold(queue, fold,
                      WholeReduceSource<Wide, Reducer>{x, y, DTypeOf<T>::value, finish}, workspace);
  };
  if (kind == ReduceKind::kLargest) return launch(ExtremeReducer<Wide, false>{});
  if (kind == ReduceKind::kSmallest) return launch(ExtremeReducer<Wide, true>{});
  if constexpr (!std::is_same_v<T, bool>) {
    // Roots and logarithms are those of sums in double.
    const bool in_double = finish.kind != FinishKind::kDivide;
    switch (kind) {
      case ReduceKind::kSum:
        return in_double ? launch(SumReducer<Wide, Itself, double>{})
                         : launch(SumReducer<Wide, Itself>{});
      case ReduceKind::kMagnitudes:
        return launch(SumReducer<Wide, Magnitude>{});
      case ReduceKind::kSquares:
        return in_double ? launch(SumReducer<Wide, Squared, double>{})
                         : launch(SumReducer<Wide, Squared>{});
      case ReduceKind::kProduct:
        return launch(ProductReducer<Wide>{});
      case ReduceKind::kLogSumExp:
        return launch(LogSumExpReducer<Wide>{});
      default:
        break;
    }
  }
  return 0;
}

#define WEFT_REDUCE_WHOLE(T)                                                                 \
  template int LaunchReduce(LaunchQueue, ReduceKind, const FoldLaunch&, const ReduceFinish&, \
                            const T*, T*, void*)
WEFT_REDUCE_WHOLE(int8_t);
WEFT_REDUCE_WHOLE(int16_t);
WEFT_REDUCE_WHOLE(int32_t);
WEFT_REDUCE_WHOLE(int64_t);
WEFT_REDUCE_WHOLE(uint8_t);
WEFT_REDUCE_WHOLE(uint16_t);
WEFT_REDUCE_WHOLE(uint32_t);
WEFT_REDUCE_WHOLE(uint64_t);
WEFT_REDUCE_WHOLE(bool);
#undef WEFT_REDUCE_WHOLE

}  // namespace weft::cuda
