#include "graph/graph_builder.h"
#include "graph/sharding.h"
#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using testing::CheckGradient;
using testing::CheckSharding;
using testing::ExpectError;
using testing::ExpectOutputs;
using testing::Int64s;
using testing::MakeSingleNodeGraph;
using testing::OpCase;
using testing::RandomTensor;

Tensor Ints(Shape shape, const std::vector<int32_t>& values) {
  return Tensor::Of<int32_t>(shape, values);
}

OpCase ConcatCase(std::vector<Tensor> inputs, int64_t axis) {
  return {.op = "Concat", .attributes = {{"axis", axis}}, .inputs = std::move(inputs)};
}

TEST(ConcatTest, PutsInputsSideBySide) {
  const Tensor a = Ints({2, 2}, {1, 2, 3, 4});
  const Tensor b = Ints({2, 1}, {5, 6});
  EXPECT_TRUE(
      ExpectOutputs(ConcatCase({a, b, a}, 1), {Ints({2, 5}, {1, 2, 5, 1, 2, 3, 4, 6, 3, 4})}));
  const Tensor row = Ints({1, 2}, {7, 8});
  EXPECT_TRUE(ExpectOutputs(ConcatCase({a, row}, -2), {Ints({3, 2}, {1, 2, 3, 4, 7, 8})}));
  EXPECT_TRUE(ExpectOutputs(ConcatCase({a}, 0), {a}));
}

TEST(ConcatTest, InputsWithoutElements) {
  const Tensor a = Ints({2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(ExpectOutputs(ConcatCase({Ints({0, 2}, {}), a}, 0), {a}));
  EXPECT_TRUE(
      ExpectOutputs(ConcatCase({Ints({0, 2}, {}), Ints({0, 1}, {})}, 1), {Ints({0, 3}, {})}));
}

TEST(ConcatTest, RefusesInputsThatDoNotFit) {
  const auto code = absl::StatusCode::kInvalidArgument;
  const Tensor a = RandomTensor({2, 2}, 1);
  EXPECT_TRUE(ExpectError(ConcatCase({a, RandomTensor({3, 2}, 1)}, 1), code,
                          {"input 1 has shape [3,2]", "axis 0 must have size 2"}));
  EXPECT_TRUE(ExpectError(ConcatCase({a, RandomTensor({2}, 1)}, 1), code,
                          {"input 1 has shape [2]", "not that of the first, 2"}));
  EXPECT_TRUE(ExpectError(ConcatCase({a}, 2), code, {"axis 2 is outside [-2, 2)"}));
}

TEST(ConcatTest, Gradient) {
  const std::vector<Tensor> inputs = {RandomTensor({2, 3, 2}, 1), RandomTensor({2, 1, 2}, 2),
                                      RandomTensor({2, 2, 2}, 3)};
  EXPECT_TRUE(CheckGradient(ConcatCase(inputs, 1)));
  EXPECT_TRUE(CheckGradient(ConcatCase(inputs, -2)));
  EXPECT_TRUE(CheckGradient(ConcatCase(inputs, 1), {.inputs = {1}}));
  EXPECT_TRUE(CheckGradient(ConcatCase({inputs[0]}, 1)));
  EXPECT_TRUE(CheckGradient(ConcatCase({inputs[0], inputs[0]}, -1)));
}

TEST(ConcatTest, Sharding) {
  // Unequal parts: only the other axes.
  EXPECT_TRUE(CheckSharding(ConcatCase({RandomTensor({4, 3, 6}, 1), RandomTensor({4, 2, 6}, 2)}, 1),
                            {.min_splits = 4}));
  // Equal parts: the axis too, in blocks.
  EXPECT_TRUE(CheckSharding(
      ConcatCase({RandomTensor({4, 6}, 1), RandomTensor({4, 6}, 2), RandomTensor({4, 6}, 3)}, 1),
      {.min_splits = 4}));
}

OpCase SplitCase(Tensor input, int64_t axis, std::vector<int64_t> sizes, int outputs) {
  OpCase op_case{.op = "Split",
                 .attributes = {{"axis", axis}},
                 .inputs = {std::move(input)},
                 .outputs = std::vector<bool>(outputs, true)};
  if (!sizes.empty()) op_case.inputs.push_back(Int64s(sizes));
  return op_case;
}

TEST(SplitTest, CutsByTheGivenSizes) {
  const Tensor input = Ints({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_TRUE(ExpectOutputs(SplitCase(input, 1, {1, 3}, 2),
                            {Ints({2, 1}, {1, 5}), Ints({2, 3}, {2, 3, 4, 6, 7, 8})}));
  EXPECT_TRUE(ExpectOutputs(SplitCase(input, -1, {0, 4, 0}, 3),
                            {Ints({2, 0}, {}), input, Ints({2, 0}, {})}));
}

TEST(SplitTest, CutsIntoPartsAsEqualAsPossible) {
  const Tensor input = Ints({7}, {1, 2, 3, 4, 5, 6, 7});
  EXPECT_TRUE(ExpectOutputs(SplitCase(input, 0, {}, 3),
                            {Ints({3}, {1, 2, 3}), Ints({3}, {4, 5, 6}), Ints({1}, {7})}));
}

TEST(SplitTest, LeavesOutUnwantedOutputs) {
  OpCase op_case = SplitCase(Ints({3}, {1, 2, 3}), 0, {}, 3);
  op_case.outputs = {true, false, true};
  EXPECT_TRUE(ExpectOutputs(op_case, {Ints({1}, {1}), Tensor(), Ints({1}, {3})}));
}

TEST(SplitTest, RefusesSizesThatDoNotFit) {
  const auto code = absl::StatusCode::kInvalidArgument;
  const Tensor input = RandomTensor({2, 4}, 1);
  EXPECT_TRUE(ExpectError(SplitCase(input, 1, {1, 2}, 2), code,
                          {"add up to 3, but the axis to split has 4"}));
  EXPECT_TRUE(ExpectError(SplitCase(input, 1, {2, 2}, 3), code,
                          {"split has 2 sizes, but the node has 3 outputs"}));
  EXPECT_TRUE(ExpectError(SplitCase(input, 1, {5, -1}, 2), code, {"negative size, -1"}));
  OpCase counted = SplitCase(input, 1, {}, 2);
  counted.attributes.Set("num_outputs", int64_t{4});
  EXPECT_TRUE(ExpectError(counted, code, {"num_outputs is 4"}));
}

TEST(SplitTest, Gradient) {
  const Tensor input = RandomTensor({2, 6}, 1);
  EXPECT_TRUE(CheckGradient(SplitCase(input, 1, {1, 3, 2}, 3)));
  EXPECT_TRUE(CheckGradient(SplitCase(input, -1, {}, 3)));
  OpCase partly = SplitCase(input, 1, {1, 3, 2}, 3);
  partly.outputs = {true, false, true};
  EXPECT_TRUE(CheckGradient(partly));
}

TEST(SplitTest, Sharding) {
  EXPECT_TRUE(
      CheckSharding(SplitCase(RandomTensor({4, 9}, 1), 1, {2, 3, 4}, 3), {.min_splits = 2}));
  EXPECT_TRUE(
      CheckSharding(SplitCase(RandomTensor({4, 18}, 1), 1, {6, 6, 6}, 3), {.min_splits = 4}));
  EXPECT_TRUE(CheckSharding(SplitCase(RandomTensor({4, 12}, 1), 1, {}, 2), {.min_splits = 4}));
}

// A fused QKV projection, split over ranks in three blocks, gives split Q, K and V.
TEST(SplitTest, EqualPartsOfABlockedAxisAreSplit) {
  const OpCase op_case = SplitCase(RandomTensor({2, 12}, 1), -1, {}, 3);
  const auto single = MakeSingleNodeGraph(op_case);
  const Node& node = single.graph->node(single.node);
  const auto concrete = ConcreteNode::Create(node, op_case.inputs);
  ASSERT_TRUE(concrete.ok()) << concrete.status();
  const absl::StatusOr<FactorRule> rule = node.schema->sharding()(*concrete);
  ASSERT_TRUE(rule.ok()) << rule.status();
  const int part = rule->outputs[0].dims[1].back();
  EXPECT_EQ(ShardingOfFactor(*rule, rule->inputs[0], part, 2), AxisSharding::Split(1, 3));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ShardingOfFactor(*rule, rule->outputs[i], part, 2), AxisSharding::Split(1));
  }
}

// One size is not known, so that the others do not add up to anything yet.
TEST(SplitTest, HandsOnNoElementsBeyondTheLast) {
  Graph graph;
  const ValueId n =
      graph.AddInput("n", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N")})});
  GraphBuilder builder(graph);
  const ValueId sizes =
      builder.Op("Concat", {builder.Ints({100}), builder.Op("Shape", {n})}, {{"axis", int64_t{0}}});
  const std::vector<ValueId> parts =
      builder.Ops("", "Split", {builder.Ints({1, 2, 3}), sizes}, {}, {true, true});
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  for (const ValueId part : parts) EXPECT_FALSE(graph.value(part).elements.has_value());
}

}  // namespace
}  // namespace weft
