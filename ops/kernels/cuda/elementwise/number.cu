// Functions of one number: signs, bits, tests, cuts and copies.
#include "ops/kernels/cuda/elementwise/map_grid.h"
#include "ops/kernels/cuda/elementwise/unary_ops.h"

namespace weft::cuda {
namespace {

// Operators that do not know the sign of whole numbers.
template <typename Op, typename List>
UnaryLaunch UnaryByBits(DType dtype, List list) {
  return ByType<UnaryLaunch>(dtype, list, [](auto type) -> UnaryLaunch {
    return LaunchUnary<Op, BitsOf<decltype(type)>>;
  });
}

template <typename Op>
UnaryLaunch TestByType(DType dtype) {
  return ByType<UnaryLaunch>(dtype, Floats(), [](auto type) -> UnaryLaunch {
    return LaunchUnary<Op, decltype(type), uint8_t>;
  });
}

}  // namespace

UnaryLaunch FindNumberFunction(UnaryFunction function, DType dtype) {
  switch (function) {
    case UnaryFunction::kNeg:
      return UnaryByBits<NegOp>(dtype, Numbers());
    case UnaryFunction::kAbs:
      return UnaryByType<AbsOp>(dtype, Numbers());
    case UnaryFunction::kSign:
      return UnaryByType<SignOp>(dtype, Numbers());
    case UnaryFunction::kRelu:
      return UnaryByType<ReluOp>(dtype, Numbers());
    case UnaryFunction::kShrink:
      return UnaryByType<ShrinkOp>(dtype, Numbers());
    case UnaryFunction::kBitwiseNot:
      return UnaryByBits<BitwiseNotOp>(dtype, Wholes());
    case UnaryFunction::kNot:
      return dtype == DType::kBool ? LaunchUnary<NotOp, uint8_t> : nullptr;
    case UnaryFunction::kIsNan:
      return TestByType<IsNanOp>(dtype);
    case UnaryFunction::kIsInf:
      return TestByType<IsInfOp>(dtype);
    default:
      return nullptr;
  }
}

int LaunchCopy(const UnaryCall& call) { return LaunchUnary<CopyOp, uint8_t>(call); }

ClipLaunch FindClip(DType dtype) {
  return ByType<ClipLaunch>(dtype, Numbers(), [](auto type) -> ClipLaunch {
    using T = decltype(type);
    return [](const ClipCall& call) {
      return LaunchMap<ClipOp<T>, T, T>(
          call.queue, call.x, call.y, call.count,
          ClipOp<T>{static_cast<const T*>(call.low), static_cast<const T*>(call.high)});
    };
  });
}

}  // namespace weft::cuda
