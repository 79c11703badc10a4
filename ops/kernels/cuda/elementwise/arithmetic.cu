// Add, Sub, Mul, Div, Mod, PRelu and SwiGLU.
#include "ops/kernels/cuda/elementwise/binary_ops.h"
#include "ops/kernels/cuda/elementwise/map_launch.h"

namespace weft::cuda {
namespace {

// Operators that do not know the sign of whole numbers.
template <typename Op>
BinaryLaunch BinaryByBits(DType dtype) {
  return ByType<BinaryLaunch>(dtype, Numbers(),
                              [](auto type) { return BinaryOf<Op, BitsOf<decltype(type)>>(); });
}

template <typename Op, typename T>
int LaunchDivision(const BinaryCall& call) {
  return LaunchMapOfTwo<Op, T, T, T>(call, Op{{call.report, call.first_b}});
}

// One operator for floats, and one for whole numbers, which reports divisors that are 0.
template <typename Op, typename WholeOp>
BinaryLaunch DivisionByType(DType dtype) {
  return ByType<BinaryLaunch>(dtype, Numbers(), [](auto type) -> BinaryLaunch {
    using T = decltype(type);
    if constexpr (std::is_integral_v<T>) {
      return {LaunchDivision<WholeOp, T>, kWidthOfTwo<WholeOp, T>};
    } else {
      return BinaryOf<Op, T>();
    }
  });
}

}  // namespace

BinaryLaunch FindArithmetic(BinaryFunction function, DType dtype) {
  switch (function) {
    case BinaryFunction::kAdd:
      return BinaryByBits<AddOp>(dtype);
    case BinaryFunction::kSub:
      return BinaryByBits<SubOp>(dtype);
    case BinaryFunction::kMul:
      return BinaryByBits<MulOp>(dtype);
    case BinaryFunction::kDiv:
      return DivisionByType<DivOp, DivWholeOp>(dtype);
    case BinaryFunction::kMod:
      return DivisionByType<ModOp<false>, ModWholeOp<false>>(dtype);
    case BinaryFunction::kTruncatedMod:
      return DivisionByType<ModOp<true>, ModWholeOp<true>>(dtype);
    case BinaryFunction::kPRelu:
      return BinaryByType<PReluOp>(dtype, Numbers());
    case BinaryFunction::kSwiGlu:
      return BinaryByType<SwiGluOp>(dtype, Floats());
    default:
      return {};
  }
}

}  // namespace weft::cuda
