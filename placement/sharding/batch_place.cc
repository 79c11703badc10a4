#include "placement/sharding/batch_place.h"

#include <cmath>
#include <vector>

#include "tensor/dtype.h"

namespace weft {
namespace {

// Larger constants are taken to be the same for all samples.
constexpr int64_t kMaxCompared = int64_t{1} << 22;

// A constant, seen as outer x blocks x samples x rest x inner.
class ConstantRows {
 public:
  ConstantRows(const std::vector<double>& values, const Shape& shape, int axis, int64_t blocks,
               int64_t samples)
      : values_(values),
        samples_(samples),
        outer_(shape.ProductOf(0, axis) * blocks),
        inner_(static_cast<int64_t>(values.size()) / (outer_ * samples)) {}

  // Sample n has the values of sample 0 plus n times this; nullopt where that holds of no number.
  std::optional<double> Step() const {
    const double step = samples_ > 1 ? At(0, 1, 0) - At(0, 0, 0) : 0;
    for (int64_t o = 0; o < outer_; ++o) {
      for (int64_t n = 0; n < samples_; ++n) {
        for (int64_t i = 0; i < inner_; ++i) {
          if (At(o, n, i) != At(o, 0, i) + static_cast<double>(n) * step) return std::nullopt;
        }
      }
    }
    return step;
  }
  // Sample 0 has numbers from 0 up to `step` only, so that each sample has a range of its own.
  bool BeginsBelow(double step) const {
    for (int64_t o = 0; o < outer_; ++o) {
      for (int64_t i = 0; i < inner_; ++i) {
        if (At(o, 0, i) < 0 || At(o, 0, i) >= step) return false;
      }
    }
    return true;
  }

 private:
  double At(int64_t outer, int64_t sample, int64_t inner) const {
    return values_[static_cast<size_t>((outer * samples_ + sample) * inner_ + inner)];
  }

  const std::vector<double>& values_;
  const int64_t samples_;
  const int64_t outer_;
  const int64_t inner_;
};

// All elements along the axis are equal.
bool IsUniform(const std::vector<double>& values, const Shape& shape, int axis) {
  return ConstantRows(values, shape, axis, 1, shape.dim(axis)).Step() == 0.0;
}

// The samples of a constant as blocks x samples x rest of this axis: all alike, or integers that
// count them.
std::optional<BatchPlace> PlaceOfNumbers(const std::vector<double>& values, const Shape& shape,
                                         int axis, int64_t samples, bool is_integer) {
  for (const int64_t blocks : {int64_t{1}, shape.dim(axis) / samples}) {
    const ConstantRows rows(values, shape, axis, blocks, samples);
    const std::optional<double> step = rows.Step();
    if (!step.has_value()) continue;
    const bool counts = is_integer && *step >= 1 && rows.BeginsBelow(*step);
    if (*step != 0 && !counts) continue;
    BatchPlace place = BatchPlace::Split(axis, blocks);
    place.stride = static_cast<int64_t>(*step);
    return place;
  }
  return std::nullopt;
}

// Elements `begin` up to `end` along the last axis.
std::vector<double> PartOfLast(const std::vector<double>& values, int64_t last, int64_t begin,
                               int64_t end) {
  std::vector<double> part;
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(last)) {
    for (int64_t i = begin; i < end; ++i) part.push_back(values[row + static_cast<size_t>(i)]);
  }
  return part;
}

// Positions as GatherND takes them: the first element along the last axis counts the samples, the
// others are the same for all.
std::optional<BatchPlace> PlaceOfPositions(const std::vector<double>& values, const Shape& shape,
                                           int axis, int64_t samples) {
  const int64_t last = shape.dim(shape.rank() - 1);
  if (axis == shape.rank() - 1 || last < 2) return std::nullopt;
  const auto part = [&](int64_t begin, int64_t end) {
    Shape of_part = shape;
    of_part.set_dim(shape.rank() - 1, end - begin);
    return PlaceOfNumbers(PartOfLast(values, last, begin, end), of_part, axis, samples, true);
  };
  std::optional<BatchPlace> first = part(0, 1);
  const std::optional<BatchPlace> others = part(1, last);
  const bool fits = first.has_value() && others.has_value() && first->blocks == others->blocks &&
                    first->stride > 0 && others->stride == 0;
  if (!fits) return std::nullopt;
  first->only_first = true;
  return first;
}

// A constant with an axis that grows with the batch.
BatchPlace PlaceOfRows(const Tensor& tensor, int axis, int64_t samples) {
  BatchPlace place = BatchPlace::Split(axis);
  place.is_uniform = tensor.num_elements() == 0;
  if (place.is_uniform || tensor.num_elements() > kMaxCompared) return place;
  const absl::StatusOr<std::vector<double>> values = ToDoubles(tensor);
  if (!values.ok()) return BatchPlace::Of(BatchPlace::Kind::kOther);
  const Shape& shape = tensor.shape();
  place.is_uniform = IsUniform(*values, shape, axis);
  if (place.is_uniform) return place;
  const bool is_integer = IsInteger(tensor.dtype());
  std::optional<BatchPlace> found = PlaceOfNumbers(*values, shape, axis, samples, is_integer);
  if (!found.has_value() && is_integer) found = PlaceOfPositions(*values, shape, axis, samples);
  if (found.has_value()) return *found;
  return BatchPlace::Of(BatchPlace::Kind::kOther);
}

// `a` is `b` times this for all elements.
bool IsMultiple(const std::vector<double>& a, const std::vector<double>& b, double factor) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - factor * b[i]) > 1e-6 * std::abs(a[i])) return false;
  }
  return true;
}

}  // namespace

std::optional<BatchFactor> FactorOfBatch(const FactorRule& rule, const OperandFactors& operand,
                                         const BatchPlace& place, int64_t samples) {
  if (place.axis >= static_cast<int>(operand.dims.size())) return std::nullopt;
  int64_t before = 1;
  for (const int factor : operand.dims[place.axis]) {
    const int64_t after = before * rule.factors[factor].size;
    if (place.blocks < after) {
      const bool holds = place.blocks % before == 0 && after % (place.blocks * samples) == 0;
      if (!holds) return std::nullopt;
      return BatchFactor{factor, place.blocks / before};
    }
    before = after;
  }
  return std::nullopt;
}

std::optional<BatchPlace> PlaceOfFactor(const FactorRule& rule, const OperandFactors& operand,
                                        const BatchFactor& batch) {
  std::optional<BatchPlace> found;
  for (size_t axis = 0; axis < operand.dims.size(); ++axis) {
    int64_t before = 1;
    for (const int factor : operand.dims[axis]) {
      if (factor == batch.factor) {
        if (found.has_value()) return std::nullopt;
        found = BatchPlace::Split(static_cast<int>(axis), before * batch.blocks);
      }
      before *= rule.factors[factor].size;
    }
  }
  return found.has_value() ? found : BatchPlace();
}

BatchPlace PlaceUnderShape(const Shape& from, const BatchPlace& place, const Shape& to,
                           int64_t samples) {
  const int64_t before = from.ProductOf(0, place.axis) * place.blocks;
  if (from.num_elements() == 0) return BatchPlace::Of(BatchPlace::Kind::kLost);
  int64_t outer = 1;
  for (int axis = 0; axis < to.rank(); ++axis) {
    const int64_t size = to.dim(axis);
    const bool holds = size > 1 && before % outer == 0 && before < outer * size &&
                       (outer * size) % (before * samples) == 0;
    if (holds) return BatchPlace::Split(axis, before / outer);
    outer *= size;
  }
  return BatchPlace::Of(BatchPlace::Kind::kLost);
}

BatchPlace PlaceOfConstant(const Tensor& a, int64_t samples_a, const Tensor& b, int64_t samples_b) {
  if (a.dtype() != b.dtype()) return BatchPlace::Of(BatchPlace::Kind::kOther);
  if (a.shape() != b.shape()) {
    const BatchPlace place = PlaceByShape(a.shape(), samples_a, b.shape(), samples_b);
    if (!place.is(BatchPlace::Kind::kSplit)) return BatchPlace::Of(BatchPlace::Kind::kOther);
    return PlaceOfRows(a, place.axis, samples_a);
  }
  if (BitwiseEqual(a, b)) return {};
  const absl::StatusOr<std::vector<double>> of_a = ToDoubles(a);
  const absl::StatusOr<std::vector<double>> of_b = ToDoubles(b);
  if (!of_a.ok() || !of_b.ok()) return BatchPlace::Of(BatchPlace::Kind::kOther);
  const double ratio = static_cast<double>(samples_a) / static_cast<double>(samples_b);
  if (IsMultiple(*of_a, *of_b, ratio)) return BatchPlace::Of(BatchPlace::Kind::kCount);
  if (IsMultiple(*of_a, *of_b, 1 / ratio)) return BatchPlace::Of(BatchPlace::Kind::kShare);
  return BatchPlace::Of(BatchPlace::Kind::kOther);
}

BatchPlace PlaceByShape(const Shape& a, int64_t samples_a, const Shape& b, int64_t samples_b) {
  if (a.rank() != b.rank()) return BatchPlace::Of(BatchPlace::Kind::kLost);
  BatchPlace place;
  for (int axis = 0; axis < a.rank(); ++axis) {
    if (a.dim(axis) == b.dim(axis)) continue;
    const bool grows = a.dim(axis) % samples_a == 0 && b.dim(axis) % samples_b == 0 &&
                       a.dim(axis) / samples_a == b.dim(axis) / samples_b;
    if (!grows || place.is(BatchPlace::Kind::kSplit)) {
      return BatchPlace::Of(BatchPlace::Kind::kLost);
    }
    place = BatchPlace::Split(axis);
  }
  return place;
}

}  // namespace weft
