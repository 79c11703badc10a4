#include "ops/testing/cases/random_cases.h"

#include <numeric>

#include "ops/testing/test_tensors.h"

namespace weft::testing {

Shape CaseRandom::OfRank(int rank) {
  Shape shape;
  for (int axis = 0; axis < rank; ++axis) shape.AddDim(axis < 2 ? Size() : SmallSize());
  return shape;
}

Tensor CaseRandom::Values(const Shape& shape, double low, double high, DType dtype) {
  return RandomTensor(shape, engine_(), low, high, dtype);
}

std::vector<int64_t> CaseRandom::Permutation(int rank) {
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  for (int i = rank - 1; i > 0; --i) std::swap(axes[i], axes[Between(0, i)]);
  return axes;
}

std::vector<int64_t> DimsOf(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

const CaseGenerators& RandomCases() {
  static const auto* const all = [] {
    auto* generators = new CaseGenerators();
    AddElementwiseCases(*generators);
    AddMovementCases(*generators);
    AddProductCases(*generators);
    AddReductionCases(*generators);
    AddImageCases(*generators);
    AddLossCases(*generators);
    AddMathCases(*generators);
    AddUpdateCases(*generators);
    AddAttentionCases(*generators);
    return generators;
  }();
  return *all;
}

}  // namespace weft::testing
