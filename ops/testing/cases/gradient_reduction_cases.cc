// Reductions, sums along an axis, determinants and losses.
#include <algorithm>

#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;
using Draw = std::function<Tensor(CaseRandom&, const Shape&)>;

std::function<Operands(CaseRandom&)> Reduce(const Draw& draw) {
  return [=](CaseRandom& random) {
    const Shape shape = SmallShape(random, 3);
    Operands operands{.attributes = {{"keepdims", random.Between(0, 1)}},
                      .inputs = {draw(random, shape)}};
    const int64_t kind = random.Between(0, 3);
    if (kind == 1) operands.inputs.push_back(Int64s({-1}));
    if (kind == 2) operands.inputs.push_back(Int64s({0, 2}));
    if (kind == 3) {
      operands.inputs.push_back(Int64s({}));
      operands.attributes.Set("noop_with_empty_axes", random.Between(0, 1));
    }
    return operands;
  };
}

// Products of none, one and several zeros.
Tensor WithZeros(CaseRandom& random, const Shape& shape) {
  Tensor values = Distinct(random, shape);
  const int64_t zeros = random.Between(0, 2);
  for (int64_t i = 0; i < zeros; ++i) {
    values.mutable_data<float>()[random.Between(0, shape.num_elements() - 1)] = 0;
  }
  return values;
}

void AddReductions(GradientGenerators& g) {
  const Draw any = [](CaseRandom& random, const Shape& shape) { return random.Values(shape); };
  const Draw positive = [](CaseRandom& random, const Shape& shape) {
    return random.Values(shape, 0.5, 2);
  };
  const Draw distinct = [](CaseRandom& random, const Shape& shape) {
    return Distinct(random, shape);
  };
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceLogSumExp"}) {
    AddCase(g, op, Reduce(any));
  }
  AddCase(g, "ReduceLogSum", Reduce(positive));
  AddCase(g, "ReduceL1", Reduce(BetweenKinks));
  AddCase(g, "ReduceL2", Reduce(positive));
  AddCase(g, "ReduceProd", Reduce(WithZeros));
  for (const char* op : {"ReduceMax", "ReduceMin"}) AddCase(g, op, Reduce(distinct));
}

Operands CumulativeCase(CaseRandom& random) {
  return {.attributes = {{"exclusive", random.Between(0, 1)}, {"reverse", random.Between(0, 1)}},
          .inputs = {WithZeros(random, SmallShape(random, 3)),
                     Tensor::Scalar<int64_t>(random.Between(-3, 2))}};
}

// Of full rank, and lacking one or two.
Operands DetCase(CaseRandom& random) {
  const int64_t n = random.Between(1, 4);
  Tensor x = random.Values({2, n, n});
  const int64_t lacking = random.Between(0, std::min<int64_t>(n - 1, 2));
  for (int64_t k = 0; k < lacking; ++k) {
    for (int64_t i = 0; i < n; ++i) {
      const auto data = x.mutable_data<float>();
      data[(k + 1) * n + i] = 2 * data[i];
    }
  }
  return {.inputs = {x}};
}

// Labels [2, 3], some ignored; weights, which have no gradient, or none.
GradientCase LossCase(CaseRandom& random, const std::string& op) {
  OpCase op_case{.op = op,
                 .attributes = {{"reduction", random.OneOf<std::string>({"none", "sum", "mean"})}},
                 .inputs = {random.Values({2, 4, 3}), Indices(random, {2, 3}, 0, 3)}};
  if (random.Coin()) op_case.attributes.Set("ignore_index", int64_t{1});
  if (random.Coin()) op_case.inputs.push_back(random.Values({4}, 0.5, 2));
  // One label counts, else a mean is nothing by nothing.
  op_case.inputs[1].mutable_data<int64_t>()[0] = 2;
  if (op == "SoftmaxCrossEntropyLoss") op_case.outputs.push_back(random.Coin());
  GradientCase result = CaseOf(std::move(op_case));
  result.checked = {0};
  return result;
}

std::function<Operands(CaseRandom&)> Difference() {
  return [](CaseRandom& random) {
    const Shape shape = SmallShape(random, 2);
    return Operands{.inputs = {random.Values(shape), random.Values(shape)}};
  };
}

}  // namespace

void AddReductionGradients(GradientGenerators& g) {
  AddReductions(g);
  AddCase(g, "CumSum", CumulativeCase);
  AddCase(g, "CumProd", CumulativeCase);
  AddCase(g, "Det", DetCase);
  for (const char* op : {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}) {
    g[op].push_back([op](CaseRandom& random) { return LossCase(random, op); });
  }
  AddCase(g, "ai.weft::MeanSquaredError", Difference());
  AddCase(g, "ai.weft::SquaredErrorSum", Difference());
}

}  // namespace weft::testing
