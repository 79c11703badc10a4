#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/expanded_op.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr float kScale = 0.7f;

// A body that multiplies its input by `factor`.
std::shared_ptr<Graph> Times(float factor) {
  auto body = std::make_shared<Graph>();
  const ValueId x = body->AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape()});
  GraphBuilder builder(*body);
  body->AddOutput(builder.Op("Mul", {x, builder.Float(factor)}));
  return body;
}

OpCase Flex(Attributes attributes) {
  attributes.Set("scale", kScale);
  return {.domain = "ai.onnx.preview",
          .op = "FlexAttention",
          .attributes = std::move(attributes),
          .inputs = {RandomTensor({2, 4, 3, 5}, 1), RandomTensor({2, 2, 6, 5}, 2),
                     RandomTensor({2, 2, 6, 7}, 3)}};
}

// What the standard's Attention gives with another scale, times `factor`.
Tensor Plain(const OpCase& flex, float scale, float factor) {
  OpCase plain = flex;
  plain.domain = "";
  plain.op = "Attention";
  plain.attributes = {{"scale", scale}};
  const auto outputs = RunOp(plain, Kernels::kReference);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  std::vector<float> values;
  const Tensor attended = Cast((*outputs)[0], DType::kFloat32);
  for (const float value : attended.data<float>()) {
    values.push_back(value * factor);
  }
  return Tensor::Of<float>((*outputs)[0].shape(), values);
}

TEST(FlexAttention, IsAttentionWithoutBodies) {
  const auto outputs = RunExpanded(Flex({}));
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(TensorsNear((*outputs)[0], Plain(Flex({}), kScale, 1), {.of_magnitude = 5e-6}));
}

TEST(FlexAttention, BodiesChangeScoresAndProbabilities) {
  const OpCase flex = Flex({{"score_mod", Times(3)}, {"prob_mod", Times(0.5f)}});
  const auto outputs = RunExpanded(flex);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(TensorsNear((*outputs)[0], Plain(flex, 3 * kScale, 0.5f), {.of_magnitude = 5e-6}));
}

TEST(FlexAttention, MisfitsAreNamed) {
  OpCase flex = Flex({});
  flex.inputs[1] = RandomTensor({2, 3, 6, 5}, 2);
  EXPECT_TRUE(ExpectError(flex, absl::StatusCode::kInvalidArgument,
                          {"[2,4,3,5]", "[2,3,6,5]", "do not belong together"}));
}

}  // namespace
}  // namespace weft::testing
