// Comparisons, and operators on bits and truth values.
#include "ops/kernels/cuda/elementwise/binary_ops.h"
#include "ops/kernels/cuda/elementwise/map_grid.h"

namespace weft::cuda {
namespace {

template <bool kLess, bool kEqual, typename T>
int LaunchComparison(const BinaryCall& call) {
  return LaunchMapOfTwo<ComparisonOp, T, T, uint8_t>(call, ComparisonOp{kLess, kEqual});
}

template <bool kLess, bool kEqual>
BinaryLaunch ComparisonByType(DType dtype) {
  if (kEqual && !kLess && dtype == DType::kBool) dtype = DType::kUint8;  // 0 and 1
  return ByType<BinaryLaunch>(dtype, Numbers(), [](auto type) -> BinaryLaunch {
    using T = decltype(type);
    return {LaunchComparison<kLess, kEqual, T>, kMapWidth<ComparisonOp, T, uint8_t>};
  });
}

template <BitLogic kLogic, typename T>
int LaunchLogic(const BinaryCall& call) {
  return LaunchMapOfTwo<BitLogicOp, T, T, T>(call, BitLogicOp{kLogic});
}

template <BitLogic kLogic>
BinaryLaunch LogicByType(DType dtype) {
  if (dtype == DType::kBool) dtype = DType::kUint8;
  return ByType<BinaryLaunch>(dtype, Wholes(), [](auto type) -> BinaryLaunch {
    using T = BitsOf<decltype(type)>;
    return {LaunchLogic<kLogic, T>, kMapWidth<BitLogicOp, T>};
  });
}

template <bool kLeft, typename T>
int LaunchShift(const BinaryCall& call) {
  return LaunchMapOfTwo<ShiftOp, T, T, T>(call, ShiftOp{kLeft});
}

template <bool kLeft>
BinaryLaunch ShiftByType(DType dtype) {
  return ByType<BinaryLaunch>(dtype, Wholes(), [](auto type) -> BinaryLaunch {
    using T = decltype(type);
    return {LaunchShift<kLeft, T>, kMapWidth<ShiftOp, T>};
  });
}

}  // namespace

BinaryLaunch FindComparison(BinaryFunction function, DType dtype) {
  switch (function) {
    case BinaryFunction::kEqual:
      return ComparisonByType<false, true>(dtype);
    case BinaryFunction::kLess:
      return ComparisonByType<true, false>(dtype);
    case BinaryFunction::kLessOrEqual:
      return ComparisonByType<true, true>(dtype);
    default:
      return {};
  }
}

BinaryLaunch FindBits(BinaryFunction function, DType dtype) {
  switch (function) {
    case BinaryFunction::kBitwiseAnd:
      return LogicByType<BitLogic::kAnd>(dtype);
    case BinaryFunction::kBitwiseOr:
      return LogicByType<BitLogic::kOr>(dtype);
    case BinaryFunction::kBitwiseXor:
      return LogicByType<BitLogic::kXor>(dtype);
    case BinaryFunction::kShiftLeft:
      return ShiftByType<true>(dtype);
    case BinaryFunction::kShiftRight:
      return ShiftByType<false>(dtype);
    default:
      return {};
  }
}

}  // namespace weft::cuda
