#include <cmath>
#include <limits>
#include <optional>

#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

Attributes Reduce(bool keepdims, bool noop = false) {
  return {{"keepdims", int64_t{keepdims}}, {"noop_with_empty_axes", int64_t{noop}}};
}

class ReduceTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Without an axes input when `axes` is nullopt.
  OpCase Case(Shape shape, std::optional<std::vector<int64_t>> axes, bool keepdims = true,
              DType dtype = DType::kFloat32) const {
    OpCase op_case{.op = GetParam(),
                   .attributes = Reduce(keepdims),
                   .inputs = {Cast(RandomDistinct(std::move(shape), 1), dtype)}};
    if (axes.has_value()) op_case.inputs.push_back(Int64s(*axes));
    return op_case;
  }
};

TEST_P(ReduceTest, EverySetOfAxes) {
  const Shape shape{3, 17, 5, 7};
  for (int mask = 0; mask < 16; ++mask) {
    std::vector<int64_t> axes;
    for (int d = 0; d < 4; ++d) {
      if (mask >> d & 1) axes.push_back(d % 2 == 0 ? d : d - 4);
    }
    for (const bool keepdims : {false, true}) {
      EXPECT_TRUE(CheckKernelAgainstReference(Case(shape, axes, keepdims), {.of_magnitude = 3e-7}));
    }
  }
}

TEST_P(ReduceTest, AwkwardShapes) {
  for (const Shape& shape : AwkwardShapes()) {
    EXPECT_TRUE(CheckKernelAgainstReference(Case(shape, std::nullopt, false)));
    if (shape.rank() == 0) continue;
    EXPECT_TRUE(CheckKernelAgainstReference(Case(shape, std::vector<int64_t>{-1})));
    EXPECT_TRUE(CheckKernelAgainstReference(Case(shape, std::vector<int64_t>{0}, false)));
  }
}

TEST_P(ReduceTest, WideMatrices) {
  EXPECT_TRUE(CheckKernelAgainstReference(Case({37, 1031}, std::vector<int64_t>{0})));
  EXPECT_TRUE(CheckKernelAgainstReference(Case({1031, 37}, std::vector<int64_t>{1})));
  EXPECT_TRUE(CheckKernelAgainstReference(Case({5, 70, 9, 67}, std::vector<int64_t>{0, 2})));
  EXPECT_TRUE(CheckKernelAgainstReference(Case({5, 70, 9, 67}, std::vector<int64_t>{1, 3})));
}

TEST_P(ReduceTest, EmptyAxesMeanAllUnlessNoop) {
  OpCase op_case = Case({3, 5}, std::vector<int64_t>{}, false);
  EXPECT_EQ(RunOp(op_case)->at(0).shape(), Shape{});
  EXPECT_TRUE(CheckKernelAgainstReference(op_case));
  op_case.attributes = Reduce(true, /*noop=*/true);
  EXPECT_TRUE(ExpectOutputs(op_case, {op_case.inputs[0]}, {.of_magnitude = 0}));
  op_case.inputs.pop_back();
  EXPECT_TRUE(ExpectOutputs(op_case, {op_case.inputs[0]}, {.of_magnitude = 0}));
}

TEST_P(ReduceTest, OtherTypes) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    EXPECT_TRUE(CheckKernelAgainstReference(Case({6, 7}, std::vector<int64_t>{0}, true, dtype),
                                            {.of_magnitude = 5e-3}));
  }
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    const OpCase op_case{.op = GetParam(),
                         .attributes = Reduce(false),
                         .inputs = {RandomTensor({6, 7}, 3, -50, 50, dtype), Int64s({1})}};
    EXPECT_TRUE(CheckKernelAgainstReference(op_case, {.of_magnitude = 0}));
  }
}

TEST_P(ReduceTest, TwoThreadsGiveTheBitsOfOne) {
  EXPECT_TRUE(SameBitsOnTwoThreads(Case({1031, 521}, std::vector<int64_t>{0})));
  EXPECT_TRUE(SameBitsOnTwoThreads(Case({1031, 521}, std::vector<int64_t>{1})));
}

TEST_P(ReduceTest, Gradients) {
  EXPECT_TRUE(CheckGradient(Case({3, 4, 5}, std::vector<int64_t>{1}, true)));
  EXPECT_TRUE(CheckGradient(Case({3, 4, 5}, std::vector<int64_t>{0, -1}, false)));
  EXPECT_TRUE(CheckGradient(Case({3, 5}, std::nullopt, false)));
  EXPECT_TRUE(CheckGradient(Case({3, 5}, std::nullopt, true)));
  EXPECT_TRUE(CheckGradient(Case({}, std::nullopt)));
}

TEST_P(ReduceTest, Shardings) {
  EXPECT_TRUE(CheckSharding(Case({6, 5, 4}, std::vector<int64_t>{1}), {.min_splits = 4}));
  EXPECT_TRUE(CheckSharding(Case({6, 5, 4}, std::vector<int64_t>{0, 2}, false)));
}

TEST_P(ReduceTest, BadAxesAreNamed) {
  EXPECT_TRUE(ExpectError(Case({2, 3}, std::vector<int64_t>{2}), absl::StatusCode::kInvalidArgument,
                          {"node 'node'", "axes has 2", "[-2, 2)"}));
  EXPECT_TRUE(ExpectError(Case({2, 3}, std::vector<int64_t>{1, -1}),
                          absl::StatusCode::kInvalidArgument, {"axes has -1 twice"}));
}

INSTANTIATE_TEST_SUITE_P(Ops, ReduceTest, ::testing::Values("ReduceSum", "ReduceMean", "ReduceMax"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ReduceSum, KeepsItsAccuracyOverAMillionElements) {
  // All of one sign: naive float32 addition would lose five digits.
  const Tensor x = RandomTensor({1'000'003}, 1, 0.1, 1);
  EXPECT_TRUE(
      CheckKernelAgainstReference({.op = "ReduceSum", .inputs = {x}}, {.of_magnitude = 1e-6}));
  EXPECT_TRUE(CheckKernelAgainstReference(
      {.op = "ReduceSum", .inputs = {x.Reshaped({1'000'003, 1}), Int64s({0})}},
      {.of_magnitude = 1e-6}));
  EXPECT_TRUE(CheckKernelAgainstReference(
      {.op = "ReduceSum", .inputs = {RandomTensor({200'000, 5}, 2, 0.1, 1), Int64s({0})}},
      {.of_magnitude = 1e-6}));
}

TEST(ReduceSum, GradientSplitsOverTheBatchAxis) {
  EXPECT_TRUE(CheckSharding({.op = "ReduceSum", .inputs = {RandomTensor({6, 5}, 1), Int64s({0})}},
                            {.min_splits = 4}));
}

TEST(ReduceMean, OfNothingIsNan) {
  const auto outputs =
      RunOp({.op = "ReduceMean", .inputs = {RandomTensor({0, 2}, 1), Int64s({0})}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(outputs->at(0).shape(), (Shape{1, 2}));
  EXPECT_TRUE(std::isnan(outputs->at(0).data<float>()[0]));
}

TEST(ReduceMax, NanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of<float>({2, 3}, std::vector<float>{1, nan, 2, 3, 1, 2});
  EXPECT_TRUE(
      ExpectOutputs({.op = "ReduceMax", .attributes = Reduce(false), .inputs = {x, Int64s({1})}},
                    {Tensor::Of<float>({2}, std::vector<float>{nan, 3})}));
}

TEST(ReduceMax, OfBoolsIsOr) {
  const Tensor x = Cast(Int64s({0, 0, 1, 0}).Reshaped({2, 2}), DType::kBool);
  EXPECT_TRUE(
      ExpectOutputs({.op = "ReduceMax", .attributes = Reduce(false), .inputs = {x, Int64s({1})}},
                    {Cast(Int64s({0, 1}), DType::kBool)}));
}

TEST(ReduceMax, EqualLargestShareTheGradient) {
  const OpCase op_case{.op = "ReduceMax",
                       .inputs = {Tensor::Of<float>({3}, std::vector<float>{5, 5, 1})}};
  const auto graph = BuildGradientGraph(op_case, {0});
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto gradients =
      EvaluateGraph(*graph->graph,
                    {{graph->inputs[0], op_case.inputs[0]},
                     {graph->output_gradients[0], Tensor::Of<float>({1}, std::vector<float>{4})}},
                    {graph->input_gradients[0]});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_TRUE(TensorsNear(gradients->at(0), Tensor::Of<float>({3}, std::vector<float>{2, 2, 0})));
}

TEST(ReduceSum, ShapeOfSymbolicInputs) {
  Graph graph;
  const ValueId x = graph.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(3)})});
  GraphBuilder builder(graph);
  const ValueId kept = builder.Op("ReduceSum", {x, builder.Ints({1})}, Reduce(false));
  const ValueId all = builder.Op("ReduceSum", {x}, Reduce(true));
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  EXPECT_EQ(builder.type(kept).ToString(), "float32[N]");
  EXPECT_EQ(builder.type(all).ToString(), "float32[1,1]");
}

// ---- SumToShape, BroadcastReduced, ElementCount.

OpCase SumToShape(Shape from, std::vector<int64_t> to) {
  return {.domain = "ai.weft",
          .op = "SumToShape",
          .inputs = {RandomTensor(std::move(from), 1), Int64s(to)}};
}

TEST(SumToShape, SumsTheBroadcastAxes) {
  for (const std::vector<int64_t>& to : std::vector<std::vector<int64_t>>{
           {}, {5}, {1}, {4, 1}, {4, 5}, {3, 4, 5}, {3, 1, 5}, {1, 4, 1}, {1, 1, 1}}) {
    EXPECT_TRUE(CheckKernelAgainstReference(SumToShape({3, 4, 5}, to)));
    EXPECT_TRUE(CheckSharding(SumToShape({3, 4, 5}, to), {.min_splits = 4}));
  }
}

TEST(SumToShape, EmptyTensors) {
  EXPECT_TRUE(CheckKernelAgainstReference(SumToShape({0, 4}, {4})));
  EXPECT_TRUE(CheckKernelAgainstReference(SumToShape({0, 4}, {1, 1})));
  EXPECT_TRUE(CheckKernelAgainstReference(SumToShape({0, 4}, {0, 1})));
}

TEST(SumToShape, ShapesThatDoNotFitAreNamed) {
  EXPECT_TRUE(ExpectError(SumToShape({3, 4}, {3}), absl::StatusCode::kInvalidArgument,
                          {"SumToShape", "[3,4]", "cannot be summed to the shape [3]"}));
}

OpCase BroadcastReduced(Shape small, std::vector<int64_t> big, std::vector<int64_t> axes,
                        bool keepdims, bool mean) {
  Attributes attributes = Reduce(keepdims);
  attributes.Set("mean", int64_t{mean});
  return {.domain = "ai.weft",
          .op = "BroadcastReduced",
          .attributes = attributes,
          .inputs = {RandomTensor(std::move(small), 1), Int64s(big), Int64s(axes)}};
}

TEST(BroadcastReduced, SpreadsAlongTheReducedAxes) {
  for (const bool mean : {false, true}) {
    EXPECT_TRUE(
        CheckKernelAgainstReference(BroadcastReduced({3, 1, 5}, {3, 4, 5}, {1}, true, mean)));
    EXPECT_TRUE(CheckKernelAgainstReference(BroadcastReduced({4}, {3, 4, 5}, {0, 2}, false, mean)));
    EXPECT_TRUE(CheckKernelAgainstReference(BroadcastReduced({}, {3, 37}, {0, 1}, false, mean)));
    EXPECT_TRUE(CheckKernelAgainstReference(BroadcastReduced({0}, {3, 0}, {0}, false, mean)));
  }
}

TEST(BroadcastReduced, Shardings) {
  EXPECT_TRUE(
      CheckSharding(BroadcastReduced({4}, {3, 4, 5}, {0, 2}, false, true), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(BroadcastReduced({3, 1}, {3, 4}, {1}, true, false), {.min_splits = 4}));
}

TEST(ElementCount, CountsAndAddsUpOverShards) {
  const OpCase op_case{
      .domain = "ai.weft", .op = "ElementCount", .inputs = {RandomTensor({3, 7}, 1)}};
  EXPECT_TRUE(ExpectOutputs(op_case, {Tensor::Scalar<float>(21)}));
  EXPECT_TRUE(CheckSharding(op_case, {.min_splits = 4}));
}

}  // namespace
}  // namespace weft::testing
