// Comparisons, and operators on bits and truth values.
#include "ops/kernels/cuda/elementwise/binary_ops.h"
#include "ops/kernels/cuda/elementwise/map_launch.h"

namespace weft::cuda {
namespace {

template <typename Op>
BinaryLaunch ComparisonByType(DType dtype) {
  return ByType<BinaryLaunch>(dtype, Numbers(),
                              [](auto type) { return BinaryOf<Op, decltype(type), uint8_t>(); });
}

// Whole numbers are equal where their bits are; floats are not (0 and -0, NaN).
BinaryLaunch FindEqual(DType dtype) {
  if (dtype == DType::kBool) return BinaryOf<EqualOp, uint8_t>();
  return ByType<BinaryLaunch>(dtype, Numbers(), [](auto type) {
    return BinaryOf<EqualOp, BitsOf<decltype(type)>, uint8_t>();
  });
}

template <typename Op>
BinaryLaunch BitsByType(DType dtype) {
  if (dtype == DType::kBool) return BinaryOf<Op, uint8_t>();
  return ByType<BinaryLaunch>(dtype, Wholes(),
                              [](auto type) { return BinaryOf<Op, BitsOf<decltype(type)>>(); });
}

}  // namespace

BinaryLaunch FindComparison(BinaryFunction function, DType dtype) {
  switch (function) {
    case BinaryFunction::kEqual:
      return FindEqual(dtype);
    case BinaryFunction::kLess:
      return ComparisonByType<LessOp>(dtype);
    case BinaryFunction::kLessOrEqual:
      return ComparisonByType<LessOrEqualOp>(dtype);
    default:
      return {};
  }
}

BinaryLaunch FindBits(BinaryFunction function, DType dtype) {
  switch (function) {
    case BinaryFunction::kBitwiseAnd:
      return BitsByType<BitwiseAndOp>(dtype);
    case BinaryFunction::kBitwiseOr:
      return BitsByType<BitwiseOrOp>(dtype);
    case BinaryFunction::kBitwiseXor:
      return BitsByType<BitwiseXorOp>(dtype);
    case BinaryFunction::kShiftLeft:
      return BinaryByType<ShiftLeftOp>(dtype, Wholes());
    case BinaryFunction::kShiftRight:
      return BinaryByType<ShiftRightOp>(dtype, Wholes());
    default:
      return {};
  }
}

}  // namespace weft::cuda
