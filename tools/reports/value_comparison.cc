#include "tools/reports/value_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

constexpr double kBfloat16Tolerance = 1.0 / 64;

std::string TypeText(const Tensor& tensor) {
  return absl::StrCat(std::string(DTypeName(tensor.dtype())), tensor.shape().ToString());
}

std::string KindText(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kTensor:
      return "a tensor";
    case ValueKind::kSequence:
      return absl::StrCat("a sequence of ", value.elements().size());
    case ValueKind::kOptional:
      return value.has_value() ? "an optional with a value" : "an empty optional";
  }
  return "";
}

// How far outside the tolerance the pair is; 0 or less = inside.
double Excess(double actual, double expected, const Tolerance& tolerance) {
  if (std::isnan(actual) && std::isnan(expected)) return 0;
  if (actual == expected) return 0;
  const double excess =
      std::abs(actual - expected) - (tolerance.absolute + tolerance.relative * std::abs(expected));
  return std::isnan(excess) ? HUGE_VAL : excess;
}

std::string CompareReals(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance) {
  const auto left = ToDoubles(actual);
  const auto right = ToDoubles(expected);
  if (!left.ok() || !right.ok()) {
    return BitwiseEqual(actual, expected) ? "" : "the elements differ";
  }
  int64_t wrong = 0;
  size_t worst = 0;
  double worst_excess = 0;
  for (size_t i = 0; i < left->size(); ++i) {
    const double excess = Excess((*left)[i], (*right)[i], tolerance);
    if (excess <= 0) continue;
    ++wrong;
    if (excess > worst_excess) {
      worst_excess = excess;
      worst = i;
    }
  }
  if (wrong == 0) return "";
  return absl::StrFormat("%d of %d elements differ, most at %d: %.9g, expected %.9g", wrong,
                         left->size(), worst, (*left)[worst], (*right)[worst]);
}

std::string CompareExactly(const Tensor& actual, const Tensor& expected) {
  if (BitwiseEqual(actual, expected)) return "";
  return absl::StrCat("is ", actual.ToString(), ", expected ", expected.ToString());
}

std::string CompareTensors(const Tensor& actual, const Tensor& expected,
                           const Tolerance& tolerance) {
  if (actual.dtype() != expected.dtype() || actual.shape() != expected.shape()) {
    return absl::StrCat("is ", TypeText(actual), ", expected ", TypeText(expected));
  }
  if (!IsFloatingPoint(actual.dtype())) return CompareExactly(actual, expected);
  Tolerance of_type = tolerance;
  if (actual.dtype() == DType::kBfloat16) {
    of_type.relative = std::max(of_type.relative, kBfloat16Tolerance);
  }
  return CompareReals(actual, expected, of_type);
}

std::string CompareSequences(const Value& actual, const Value& expected,
                             const Tolerance& tolerance) {
  for (size_t i = 0; i < actual.elements().size(); ++i) {
    const std::string difference =
        DescribeDifference(actual.elements()[i], expected.elements()[i], tolerance);
    if (!difference.empty()) return absl::StrCat("element ", i, " ", difference);
  }
  return "";
}

}  // namespace

std::string DescribeDifference(const Value& actual, const Value& expected,
                               const Tolerance& tolerance) {
  if (KindText(actual) != KindText(expected)) {
    return absl::StrCat("is ", KindText(actual), ", expected ", KindText(expected));
  }
  switch (actual.kind()) {
    case ValueKind::kTensor:
      return CompareTensors(actual.tensor(), expected.tensor(), tolerance);
    case ValueKind::kSequence:
      return CompareSequences(actual, expected, tolerance);
    case ValueKind::kOptional:
      return actual.has_value() ? DescribeDifference(actual.value(), expected.value(), tolerance)
                                : "";
  }
  return "";
}

}  // namespace weft
