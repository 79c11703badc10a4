// Add, Sub, Mul, Div, Mod, PRelu and SwiGLU.
#include "ops/kernels/cuda/elementwise/binary_ops.h"
#include "ops/kernels/cuda/elementwise/map_grid.h"

namespace weft::cuda {
namespace {

// Operators that do not know the sign of whole numbers.
template <typename Op>
BinaryLaunch BinaryByBits(DType dtype) {
  return ByType<BinaryLaunch>(dtype, Numbers(),
                              [](auto type) { return BinaryOf<Op, BitsOf<decltype(type)>>(); });
}

template <WholeDivision kKind, typename T>
int LaunchWholeDivision(const BinaryCall& call) {
  return LaunchMapOfTwo<WholeDivisionOp, T, T, T>(
      call, WholeDivisionOp{{call.report, call.first_b}, kKind});
}

// One operator for floats, and one for whole numbers, which reports divisors that are 0.
template <typename Op, WholeDivision kKind>
BinaryLaunch DivisionByType(DType dtype) {
  return ByType<BinaryLaunch>(dtype, Numbers(), [](auto type) -> BinaryLaunch {
    using T = decltype(type);
    if constexpr (std::is_integral_v<T>) {
      return {LaunchWholeDivision<kKind, T>, kMapWidth<WholeDivisionOp, T>};
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
      return DivisionByType<DivOp, WholeDivision::kQuotient>(dtype);
    case BinaryFunction::kMod:
      return DivisionByType<ModOp<false>, WholeDivision::kRest>(dtype);
    case BinaryFunction::kTruncatedMod:
      return DivisionByType<ModOp<true>, WholeDivision::kTruncatedRest>(dtype);
    case BinaryFunction::kPRelu:
      return BinaryByType<PReluOp>(dtype, Numbers());
    case BinaryFunction::kSwiGlu:
      return BinaryByType<SwiGluOp>(dtype, Floats());
    default:
      return {};
  }
}

}  // namespace weft::cuda
