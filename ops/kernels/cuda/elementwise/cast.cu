// Cast.
#include "ops/kernels/cuda/elementwise/cast_ops.h"
#include "ops/kernels/cuda/elementwise/map_launch.h"

namespace weft::cuda {
namespace {

template <typename From>
UnaryLaunch FindCastFrom(DType to) {
  if (to == DType::kBool) return LaunchUnary<TruthOp, From, uint8_t>;
  return ByType<UnaryLaunch>(to, Numbers(), [](auto type) -> UnaryLaunch {
    using To = decltype(type);
    // Whole numbers of other widths: the bits that stay do not know the sign.
    if constexpr (std::is_integral_v<From>) {
      return LaunchUnary<CastOp<BitsOf<To>>, From, BitsOf<To>>;
    } else {
      return LaunchUnary<CastOp<To>, From, To>;
    }
  });
}

}  // namespace

UnaryLaunch FindCast(DType from, DType to) {
  if (from == DType::kBool) from = DType::kUint8;  // 0 and 1
  return ByType<UnaryLaunch>(from, Numbers(),
                             [to](auto type) { return FindCastFrom<decltype(type)>(to); });
}

UnaryLaunch FindCutOffCast(DType from) {
  return ByType<UnaryLaunch>(from, Floats(), [](auto type) -> UnaryLaunch {
    return LaunchUnary<CutOffOp, decltype(type), Bfloat16>;
  });
}

}  // namespace weft::cuda
