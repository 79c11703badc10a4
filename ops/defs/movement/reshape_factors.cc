#include "ops/defs/movement/reshape_factors.h"

#include <numeric>

#include "ops/defs/movement/shape_dims.h"

namespace weft {
namespace {

// One shape on the walk: the dimension it stands at and what is left of it.
class Walk {
 public:
  Walk(const Shape& shape, OperandFactors& factors) : shape_(shape), factors_(factors) {
    factors_.dims.assign(shape.rank(), {});
    Load();
  }
  bool at_end() const { return axis_ >= shape_.rank(); }
  // What is left of the current dimension; 1 at the end.
  int64_t rest() const { return rest_; }

  void Take(int factor, int64_t size) {
    factors_.dims[axis_].push_back(factor);
    rest_ /= size;
    if (rest_ == 1) Next();
  }
  void Next() {
    ++axis_;
    Load();
  }

 private:
  void Load() { rest_ = at_end() ? 1 : shape_.dim(axis_); }

  const Shape& shape_;
  OperandFactors& factors_;
  int axis_ = 0;
  int64_t rest_ = 1;
};

// What is left of the current dimension becomes one whole factor; its size.
int64_t TakeWhole(FactorRule& rule, Walk& walk) {
  const int64_t size = walk.rest();
  walk.Take(AddFactor(rule, size, FactorKind::kWhole), size);
  return size;
}

// Dimensions without a common boundary: whole factors on both sides until the sizes meet again,
// which they do at the end at the latest, since both shapes have the same number of elements.
void TakeMismatch(FactorRule& rule, Walk& from, Walk& to) {
  int64_t from_product = 1;
  int64_t to_product = 1;
  do {
    Walk& smaller = from_product <= to_product ? from : to;
    (&smaller == &from ? from_product : to_product) *= TakeWhole(rule, smaller);
  } while (from_product != to_product);
}

// Shapes without elements: leading dimensions that are the same, then whole ones.
void AppendEmptyFactors(const Shape& from, const Shape& to, FactorRule& rule,
                        OperandFactors& from_factors, OperandFactors& to_factors) {
  from_factors.dims.assign(from.rank(), {});
  to_factors.dims.assign(to.rank(), {});
  int common = 0;
  while (common < from.rank() && common < to.rank() && from.dim(common) == to.dim(common)) {
    const int factor = AddFactor(rule, from.dim(common), FactorKind::kParallel);
    from_factors.dims[common] = {factor};
    to_factors.dims[common] = {factor};
    ++common;
  }
  for (int axis = common; axis < from.rank(); ++axis) {
    from_factors.dims[axis] = {AddFactor(rule, from.dim(axis), FactorKind::kWhole)};
  }
  for (int axis = common; axis < to.rank(); ++axis) {
    to_factors.dims[axis] = {AddFactor(rule, to.dim(axis), FactorKind::kWhole)};
  }
}

}  // namespace

void AppendReshapeFactors(const Shape& from_shape, const Shape& to_shape, FactorRule& rule,
                          OperandFactors& from_factors, OperandFactors& to_factors) {
  if (from_shape.num_elements() == 0) {
    AppendEmptyFactors(from_shape, to_shape, rule, from_factors, to_factors);
    return;
  }
  Walk from(from_shape, from_factors);
  Walk to(to_shape, to_factors);
  while (!from.at_end() || !to.at_end()) {
    const bool from_is_one = !from.at_end() && from.rest() == 1;
    const bool to_is_one = !to.at_end() && to.rest() == 1;
    if (from_is_one && to_is_one) {
      const int factor = AddFactor(rule, 1, FactorKind::kParallel);
      from.Take(factor, 1);
      to.Take(factor, 1);
    } else if (from_is_one) {
      from.Next();
    } else if (to_is_one) {
      to.Next();
    } else if (const int64_t common = std::gcd(from.rest(), to.rest()); common > 1) {
      const int factor = AddFactor(rule, common, FactorKind::kParallel);
      from.Take(factor, common);
      to.Take(factor, common);
    } else {
      TakeMismatch(rule, from, to);
    }
  }
}

}  // namespace weft
