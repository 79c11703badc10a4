#include "ops/testing/cases/random_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// Scores [N,C,d...] and labels, some of which may be ignored, with weights now and then.
struct Labelled {
  Shape scores;
  Shape labels;
  Attributes attributes;
  std::vector<Tensor> operands;  // labels, weights
};

Labelled RandomLabels(CaseRandom& random) {
  Labelled result;
  result.scores = random.OfRank(static_cast<int>(random.Between(2, 3)));
  const double classes = static_cast<double>(result.scores.dim(1));
  for (int axis = 0; axis < result.scores.rank(); ++axis) {
    if (axis != 1) result.labels.AddDim(result.scores.dim(axis));
  }
  result.operands.push_back(random.Values(result.labels, 0, classes, DType::kInt64));
  if (random.Coin()) result.attributes.Set("ignore_index", int64_t{0});
  if (random.Coin()) {
    result.operands.push_back(random.Values({result.scores.dim(1)}, 0.25, 2));
  }
  return result;
}

CaseGenerator Loss(const std::string& op) {
  return {[op](CaseRandom& random) {
    const Labelled labelled = RandomLabels(random);
    OpCase op_case{.op = op,
                   .attributes = labelled.attributes,
                   .inputs = {random.Values(labelled.scores, -3, 3)}};
    op_case.attributes.Set("reduction", random.OneOf<std::string>({"none", "sum", "sum"}));
    op_case.inputs.insert(op_case.inputs.end(), labelled.operands.begin(), labelled.operands.end());
    if (op == "SoftmaxCrossEntropyLoss" && random.Coin()) op_case.outputs = {true, true};
    return op_case;
  }};
}

CaseGenerator LossGrad(const std::string& op) {
  return {[op](CaseRandom& random) {
    const Labelled labelled = RandomLabels(random);
    const std::string reduction = random.OneOf<std::string>({"none", "sum"});
    OpCase op_case{.domain = "ai.weft",
                   .op = op,
                   .attributes = labelled.attributes,
                   .inputs = {random.Values(reduction == "none" ? labelled.labels : Shape{}, 1, 2),
                              random.Values(labelled.scores, -3, 3)}};
    op_case.attributes.Set("reduction", reduction);
    op_case.inputs.insert(op_case.inputs.end(), labelled.operands.begin(), labelled.operands.end());
    return op_case;
  }};
}

OpCase LossWeightCase(CaseRandom& random) {
  const Labelled labelled = RandomLabels(random);
  return {.domain = "ai.weft",
          .op = "LossWeight",
          .attributes = labelled.attributes,
          .inputs = labelled.operands};
}

OpCase CountCorrectCase(CaseRandom& random) {
  const Labelled labelled = RandomLabels(random);
  return {.domain = "ai.weft",
          .op = "CountCorrect",
          .inputs = {random.Values(labelled.scores), labelled.operands[0]}};
}

OpCase PlaceSamplesCase(CaseRandom& random) {
  const Shape shape = random.OfRank(static_cast<int>(random.Between(1, 3)));
  return {.domain = "ai.weft",
          .op = "PlaceSamples",
          .attributes = {{"samples", shape.dim(0) + random.Between(0, 3)}},
          .inputs = {random.Values(shape)}};
}

CaseGenerator SquaredError(const std::string& op) {
  return {[op](CaseRandom& random) {
    const Shape shape = random.OfRank(static_cast<int>(random.Between(1, 3)));
    return OpCase{.domain = "ai.weft",
                  .op = op,
                  .inputs = {random.Values(shape, -3, 3), random.Values(shape, -3, 3)}};
  }};
}

OpCase SquaredErrorGradCase(CaseRandom& random) {
  const Shape shape = random.OfRank(2);
  return {.domain = "ai.weft",
          .op = "SquaredErrorGrad",
          .inputs = {random.Values({}, 1, 2), random.Values(shape), random.Values(shape)}};
}

}  // namespace

void AddLossCases(CaseGenerators& generators) {
  for (const char* op : {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}) {
    generators[op] = Loss(op);
  }
  for (const char* op : {"SoftmaxCrossEntropyGrad", "NegativeLogLikelihoodGrad"}) {
    generators[std::string("ai.weft::") + op] = LossGrad(op);
  }
  generators["ai.weft::LossWeight"] = {LossWeightCase};
  generators["ai.weft::CountCorrect"] = {CountCorrectCase};
  generators["ai.weft::PlaceSamples"] = {PlaceSamplesCase};
  for (const char* op : {"MeanSquaredError", "SquaredErrorSum"}) {
    generators[std::string("ai.weft::") + op] = SquaredError(op);
  }
  generators["ai.weft::SquaredErrorGrad"] = {SquaredErrorGradCase};
}

}  // namespace weft::testing
