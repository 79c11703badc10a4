// Shapes: `Shape` is concrete, `SymbolicShape` may have named or unknown dimensions.
#ifndef WEFT_TENSOR_SHAPE_H_
#define WEFT_TENSOR_SHAPE_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// Bounds every shape that comes from outside is held to (docs: reliability rules).
inline constexpr int kMaxRank = 16;
inline constexpr int64_t kMaxDim = int64_t{1} << 40;

// A concrete, row-major shape; rank 0 is a scalar with one element. Value type.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::span<const int64_t> dims) : dims_(dims.begin(), dims.end()) {}
  // Out of line: g++ 12 warns of the unused inlined storage wherever it can see through a move.
  Shape(const Shape&);
  Shape(Shape&&) noexcept;
  Shape& operator=(const Shape&);
  Shape& operator=(Shape&&) noexcept;
  ~Shape() = default;

  // The checked way in for data from files and peers: rank <= kMaxRank, 0 <= dim <= kMaxDim and the
  // element count within int64.
  static absl::StatusOr<Shape> Create(std::span<const int64_t> dims);

  int rank() const { return static_cast<int>(dims_.size()); }
  // REQUIRES: 0 <= axis < rank().
  int64_t dim(int axis) const { return dims_[axis]; }
  void set_dim(int axis, int64_t size) { dims_[axis] = size; }
  void AddDim(int64_t size) { dims_.push_back(size); }
  std::span<const int64_t> dims() const { return {dims_.data(), dims_.size()}; }

  int64_t num_elements() const;
  // Elements in dims [begin, end).
  int64_t ProductOf(int begin, int end) const;
  // Row-major strides in elements.
  absl::InlinedVector<int64_t, 6> Strides() const;

  std::string ToString() const;  // "[2,3]", "[]"

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  template <typename H>
  friend H AbslHashValue(H h, const Shape& s) {
    return H::combine(std::move(h), s.dims_);
  }

 private:
  absl::InlinedVector<int64_t, 6> dims_;
};

// Resolves a negative axis against `rank`; InvalidArgument when outside [-rank, rank).
absl::StatusOr<int> NormalizeAxis(int64_t axis, int rank);

// One dimension: a size, a name shared by equal dimensions ("batch"), or neither (unknown).
class Dim {
 public:
  Dim() = default;                    // unknown
  Dim(int64_t size) : size_(size) {}  // NOLINT: a size is a dimension
  static Dim Symbol(std::string name) {
    Dim dim;
    dim.symbol_ = std::move(name);
    return dim;
  }
  bool is_known() const { return size_ >= 0; }
  int64_t size() const { return size_; }  // REQUIRES: is_known()
  const std::string& symbol() const { return symbol_; }
  bool is_symbol() const { return size_ < 0 && !symbol_.empty(); }
  // True only if both are certain to be equal: same size, or same symbol.
  friend bool operator==(const Dim& a, const Dim& b) {
    return a.size_ == b.size_ && a.symbol_ == b.symbol_ && (a.size_ >= 0 || !a.symbol_.empty());
  }
  std::string ToString() const;  // "3", "batch", "?"

 private:
  int64_t size_ = -1;
  std::string symbol_;
};

// A shape of which the rank, or some dimensions, may not be known. Value type.
class SymbolicShape {
 public:
  SymbolicShape() = default;  // unknown rank
  explicit SymbolicShape(std::vector<Dim> dims) : dims_(std::move(dims)) {}
  SymbolicShape(const Shape& shape);  // NOLINT: a concrete shape is a symbolic one
  bool has_rank() const { return dims_.has_value(); }
  int rank() const { return static_cast<int>(dims_->size()); }  // REQUIRES: has_rank()
  const Dim& dim(int axis) const { return (*dims_)[axis]; }
  const std::vector<Dim>& dims() const { return *dims_; }  // REQUIRES: has_rank()
  // Whether every dimension is known.
  bool is_concrete() const {
    return has_rank() &&
           std::all_of(dims_->begin(), dims_->end(), [](const Dim& dim) { return dim.is_known(); });
  }
  // The concrete shape, if there is one.
  std::optional<Shape> ToConcrete() const;
  // Puts sizes in place of symbols; symbols without a binding stay.
  SymbolicShape Bind(const std::map<std::string, int64_t>& bindings) const;
  std::string ToString() const;  // "[batch,3,?]", "unknown rank"
  friend bool operator==(const SymbolicShape&, const SymbolicShape&) = default;

 private:
  std::optional<std::vector<Dim>> dims_;
};

}  // namespace weft

#endif  // WEFT_TENSOR_SHAPE_H_
