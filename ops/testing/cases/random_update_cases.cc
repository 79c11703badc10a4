#include "ops/testing/cases/random_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

OpCase UpdateCase(CaseRandom& random, const std::string& op, const Shape& shape) {
  return {.domain = "ai.weft",
          .op = op,
          .attributes = {{"weight_decay", 0.1f}},
          .inputs = {random.Values(shape), random.Values(shape), random.Values({}, 0.1, 1)}};
}

Shape AnyShape(CaseRandom& random) { return random.OfRank(random.Between(1, 3)); }

Tensor AnyStep(CaseRandom& random) { return Tensor::Scalar<int64_t>(random.Between(1, 5)); }

OpCase SgdCase(CaseRandom& random) {
  const Shape shape = AnyShape(random);
  OpCase op_case = UpdateCase(random, "SgdUpdate", shape);
  if (random.Coin()) {
    op_case.attributes.Set("momentum", 0.9f);
    op_case.attributes.Set("dampening", 0.1f);
    op_case.inputs.push_back(random.Values(shape));
    op_case.outputs = {true, true};
  }
  if (random.Coin()) {
    op_case.inputs.resize(4);
    op_case.inputs.push_back(random.Values({}, 0.1, 1));
    op_case.inputs.push_back(AnyStep(random));
  }
  return op_case;
}

OpCase AdamCase(CaseRandom& random) {
  const Shape shape = AnyShape(random);
  OpCase op_case = UpdateCase(random, "AdamUpdate", shape);
  op_case.inputs.push_back(AnyStep(random));
  op_case.inputs.push_back(random.Values(shape));
  op_case.inputs.push_back(random.Values(shape, 0.1, 1));
  op_case.outputs = {true, true, true};
  if (random.Coin()) {
    op_case.inputs.push_back(random.Values(shape, 0.1, 1));
    op_case.outputs.push_back(true);
  }
  return op_case;
}

OpCase AdagradCase(CaseRandom& random) {
  const Shape shape = AnyShape(random);
  OpCase op_case = UpdateCase(random, "AdagradUpdate", shape);
  op_case.attributes.Set("rate_decay", 0.1f);
  op_case.inputs.push_back(AnyStep(random));
  op_case.inputs.push_back(random.Values(shape, 0.1, 1));
  op_case.outputs = {true, true};
  return op_case;
}

OpCase AdadeltaCase(CaseRandom& random) {
  const Shape shape = AnyShape(random);
  OpCase op_case = UpdateCase(random, "AdadeltaUpdate", shape);
  op_case.inputs.push_back(random.Values(shape, 0.1, 1));
  op_case.inputs.push_back(random.Values(shape, 0.1, 1));
  op_case.outputs = {true, true, true};
  return op_case;
}

OpCase RmspropCase(CaseRandom& random) {
  const Shape shape = AnyShape(random);
  OpCase op_case = UpdateCase(random, "RmspropUpdate", shape);
  op_case.attributes.Set("momentum", 0.5f);
  const bool centered = random.Coin();
  op_case.inputs.push_back(random.Values(shape, 2, 3));
  op_case.inputs.push_back(centered ? random.Values(shape) : Tensor());
  op_case.inputs.push_back(random.Values(shape));
  op_case.outputs = {true, true, centered, true};
  return op_case;
}

OpCase LionCase(CaseRandom& random) {
  const Shape shape = AnyShape(random);
  OpCase op_case = UpdateCase(random, "LionUpdate", shape);
  op_case.inputs.push_back(random.Values(shape));
  op_case.outputs = {true, true};
  return op_case;
}

OpCase LambDirectionCase(CaseRandom& random) {
  const Shape shape = AnyShape(random);
  OpCase op_case = UpdateCase(random, "LambDirection", shape);
  op_case.inputs[2] = AnyStep(random);
  op_case.inputs.push_back(random.Values(shape));
  op_case.inputs.push_back(random.Values(shape, 0.1, 1));
  op_case.outputs = {true, true, true};
  return op_case;
}

OpCase TrustRatioCase(CaseRandom& random) {
  const Shape shape = AnyShape(random);
  return {.domain = "ai.weft",
          .op = "TrustRatio",
          .attributes = {{"weight_decay", 0.1f}},
          .inputs = {random.Values(shape, 0.1, 1), random.Values(shape, 0.1, 1)}};
}

OpCase EmaCase(CaseRandom& random) {
  const Shape shape = AnyShape(random);
  return {.domain = "ai.weft",
          .op = "EmaUpdate",
          .attributes = {{"decay", 0.9f}},
          .inputs = {random.Values(shape), random.Values(shape)}};
}

OpCase RateFactorCase(CaseRandom& random) {
  return {.domain = "ai.weft",
          .op = "RateFactor",
          .attributes = {{"kind", std::string("cosine")}, {"total", int64_t{6}}},
          .inputs = {random.Values(AnyShape(random), 1, 5, DType::kInt64)}};
}

}  // namespace

void AddUpdateCases(CaseGenerators& generators) {
  generators["ai.weft::SgdUpdate"] = {SgdCase};
  generators["ai.weft::AdamUpdate"] = {AdamCase};
  generators["ai.weft::AdagradUpdate"] = {AdagradCase};
  generators["ai.weft::AdadeltaUpdate"] = {AdadeltaCase};
  generators["ai.weft::RmspropUpdate"] = {RmspropCase};
  generators["ai.weft::LionUpdate"] = {LionCase};
  generators["ai.weft::LambDirection"] = {LambDirectionCase};
  generators["ai.weft::TrustRatio"] = {TrustRatioCase};
  generators["ai.weft::EmaUpdate"] = {EmaCase};
  generators["ai.weft::RateFactor"] = {RateFactorCase};
}

}  // namespace weft::testing
