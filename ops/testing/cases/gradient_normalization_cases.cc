// Normalizations, dropout, and numbers that are stored quantized.
#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

// With given statistics.
Operands BatchNormalizationCase(CaseRandom& random) {
  return {.inputs = {random.Values({2, 3, 2}), random.Values({3}), random.Values({3}),
                     random.Values({3}), random.Values({3}, 0.5, 2)}};
}

// Of the samples; nothing flows to the running ones.
GradientCase TrainingBatchNormalizationCase(CaseRandom& random) {
  OpCase op_case{.op = "BatchNormalization",
                 .attributes = {{"training_mode", int64_t{1}}},
                 .inputs = {random.Values({3, 2, 4}), random.Values({2}), random.Values({2}),
                            random.Values({2}), random.Values({2}, 0.5, 2)}};
  GradientCase result = CaseOf(std::move(op_case));
  result.checked = {0, 1, 2};
  return result;
}

Operands LayerNormalizationCase(CaseRandom& random) {
  const int64_t axis = random.Between(-2, -1);
  const Shape parameter = axis == -1 ? Shape{4} : Shape{3, 4};
  Operands operands{.attributes = {{"axis", axis}},
                    .inputs = {random.Values({2, 3, 4}), random.Values(parameter)}};
  if (random.Coin()) operands.inputs.push_back(random.Values(parameter));
  return operands;
}

Operands RmsNormalizationCase(CaseRandom& random) {
  const int64_t axis = random.Between(-2, -1);
  return {.attributes = {{"axis", axis}},
          .inputs = {random.Values({2, 3, 4}), random.Values(axis == -1 ? Shape{4} : Shape{3, 4})}};
}

// A scale that is broadcast to the normalized axes.
Operands BroadcastRmsNormalizationCase(CaseRandom& random) {
  return {
      .attributes = {{"axis", int64_t{1}}},
      .inputs = {random.Values({2, 3, 4}), random.Values(random.Coin() ? Shape{4} : Shape{3, 1})}};
}

Operands PerChannelCase(CaseRandom& random, Attributes attributes) {
  return {.attributes = std::move(attributes),
          .inputs = {random.Values({2, 4, 3, 2}), random.Values({4}), random.Values({4})}};
}

Operands LpNormalizationCase(CaseRandom& random) {
  return {.attributes = {{"axis", random.Between(-2, 1)}, {"p", random.Between(1, 2)}},
          .inputs = {BetweenKinks(random, {3, 4})}};
}

Operands LrnCase(CaseRandom& random) {
  const Shape shape = random.Coin() ? Shape{2, 5} : Shape{1, 4, 2, 2};
  return {.attributes = {{"size", random.Between(1, 4)},
                         {"alpha", 0.7f},
                         {"beta", 0.6f},
                         {"bias", 1.3f}},
          .inputs = {random.Values(shape, -2, 2)}};
}

// As it is outside of training.
Operands DropoutCase(CaseRandom& random) {
  return {.inputs = {random.Values(SmallShape(random, 2)), Tensor::Scalar<float>(0.4f)}};
}

GradientCase DequantizeCase(CaseRandom& random) {
  const bool per_axis = random.Coin();
  const Shape scale = per_axis ? Shape{3} : random.Coin() ? Shape{} : Shape{1};
  OpCase op_case{.op = "DequantizeLinear",
                 .attributes = {{"axis", int64_t{-1}}},
                 .inputs = {RandomTensor({2, 3}, random.Between(1, 99), -9, 9, DType::kInt8),
                            random.Values(scale, 0.5, 2)}};
  if (random.Coin()) {
    op_case.inputs.push_back(RandomTensor(scale, random.Between(1, 99), -3, 3, DType::kInt8));
  }
  GradientCase result = CaseOf(std::move(op_case));
  // There is no float64 scale.
  result.single = true;
  return result;
}

}  // namespace

void AddNormalizationGradients(GradientGenerators& g) {
  AddCase(g, "BatchNormalization", BatchNormalizationCase);
  g["BatchNormalization"].push_back(TrainingBatchNormalizationCase);
  AddCase(g, "LayerNormalization", LayerNormalizationCase);
  AddCase(g, "RMSNormalization", RmsNormalizationCase);
  AddCase(g, "RMSNormalization", BroadcastRmsNormalizationCase);
  AddCase(g, "SimplifiedLayerNormalization", RmsNormalizationCase);
  AddCase(g, "GroupNormalization", [](CaseRandom& random) {
    return PerChannelCase(random, {{"num_groups", int64_t{2}}});
  });
  AddCase(g, "InstanceNormalization",
          [](CaseRandom& random) { return PerChannelCase(random, {}); });
  AddCase(g, "MeanVarianceNormalization", [](CaseRandom& random) {
    return Operands{.attributes = {{"axes", Ints{0, 2}}}, .inputs = {random.Values({2, 2, 3})}};
  });
  AddCase(g, "LpNormalization", LpNormalizationCase);
  AddCase(g, "LRN", LrnCase);
  AddCase(g, "Dropout", DropoutCase);
  g["DequantizeLinear"].push_back(DequantizeCase);
}

}  // namespace weft::testing
