#include "tensor/shape.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

// The product, or the largest int64 when it does not fit: sizes that saturate are refused by
// whoever allocates.
int64_t SaturatingMultiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::numeric_limits<int64_t>::max();
  return product;
}

std::string DimsToString(std::span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims.begin(), dims.end(), ","), "]");
}

}  // namespace

Shape::Shape(const Shape&) = default;
Shape::Shape(Shape&&) noexcept = default;
Shape& Shape::operator=(const Shape&) = default;
Shape& Shape::operator=(Shape&&) noexcept = default;

absl::StatusOr<Shape> Shape::Create(std::span<const int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kMaxRank)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the shape has ", dims.size(), " dimensions; at most ", kMaxRank, " are supported"));
  }
  // Zeros count as ones here, so that every stride and partial product fits too.
  int64_t product = 1;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] < 0 || dims[axis] > kMaxDim) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dimension ", axis, " of shape ", DimsToString(dims), " must be in 0..", kMaxDim));
    }
    if (__builtin_mul_overflow(product, std::max<int64_t>(dims[axis], 1), &product)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", DimsToString(dims), " has more than 2^63-1 elements"));
    }
  }
  return Shape(dims);
}

int64_t Shape::num_elements() const { return ProductOf(0, rank()); }

int64_t Shape::ProductOf(int begin, int end) const {
  // A zero anywhere wins, also over a product that would not fit.
  for (int axis = begin; axis < end; ++axis) {
    if (dims_[axis] == 0) return 0;
  }
  int64_t product = 1;
  for (int axis = begin; axis < end; ++axis) product = SaturatingMultiply(product, dims_[axis]);
  return product;
}

absl::InlinedVector<int64_t, 6> Shape::Strides() const {
  absl::InlinedVector<int64_t, 6> strides(dims_.size(), 1);
  for (int axis = rank() - 2; axis >= 0; --axis) {
    strides[axis] = SaturatingMultiply(strides[axis + 1], dims_[axis + 1]);
  }
  return strides;
}

std::string Shape::ToString() const { return DimsToString(dims()); }

absl::StatusOr<int> NormalizeAxis(int64_t axis, int rank) {
  if (axis < -int64_t{rank} || axis >= rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("axis ", axis, " is outside [", -rank, ", ", rank, ") of rank ", rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::string Dim::ToString() const {
  if (is_known()) return absl::StrCat(size_);
  return is_symbol() ? symbol_ : "?";
}

SymbolicShape::SymbolicShape(const Shape& shape)
    : dims_(std::vector<Dim>(shape.dims().begin(), shape.dims().end())) {}

std::optional<Shape> SymbolicShape::ToConcrete() const {
  if (!has_rank()) return std::nullopt;
  Shape shape;
  for (const Dim& dim : *dims_) {
    if (!dim.is_known()) return std::nullopt;
    shape.AddDim(dim.size());
  }
  return shape;
}

SymbolicShape SymbolicShape::Bind(const std::map<std::string, int64_t>& bindings) const {
  SymbolicShape bound = *this;
  if (!has_rank()) return bound;
  for (Dim& dim : *bound.dims_) {
    if (!dim.is_symbol()) continue;
    const auto binding = bindings.find(dim.symbol());
    if (binding != bindings.end()) dim = Dim(binding->second);
  }
  return bound;
}

std::string SymbolicShape::ToString() const {
  if (!has_rank()) return "unknown rank";
  return absl::StrCat(
      "[",
      absl::StrJoin(*dims_, ",",
                    [](std::string* out, const Dim& dim) { out->append(dim.ToString()); }),
      "]");
}

}  // namespace weft
