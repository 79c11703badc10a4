#include "graph/graph_builder.h"
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
using testing::OpCase;
using testing::RandomTensor;

OpCase ReshapeCase(Shape from, const std::vector<int64_t>& to, int64_t allowzero = 0) {
  return {.op = "Reshape",
          .attributes = {{"allowzero", allowzero}},
          .inputs = {RandomTensor(from, 1), Int64s(to)}};
}

::testing::AssertionResult ReshapesTo(const OpCase& op_case, Shape expected) {
  return ExpectOutputs(op_case, {op_case.inputs[0].Reshaped(expected)});
}

TEST(ReshapeTest, TakesTheShapeLiterally) {
  EXPECT_TRUE(ReshapesTo(ReshapeCase({2, 3, 4}, {4, 2, 3}), {4, 2, 3}));
  EXPECT_TRUE(ReshapesTo(ReshapeCase({2, 3, 4}, {24}), {24}));
  EXPECT_TRUE(ReshapesTo(ReshapeCase({1}, {}), {}));
}

TEST(ReshapeTest, DeducesMinusOne) {
  EXPECT_TRUE(ReshapesTo(ReshapeCase({2, 3, 4}, {2, -1, 2}), {2, 6, 2}));
  EXPECT_TRUE(ReshapesTo(ReshapeCase({0, 784}, {-1, 784}), {0, 784}));
}

TEST(ReshapeTest, ZeroCopiesTheInputsDimension) {
  EXPECT_TRUE(ReshapesTo(ReshapeCase({2, 3, 4}, {2, 0, 4, 1}), {2, 3, 4, 1}));
  EXPECT_TRUE(ReshapesTo(ReshapeCase({2, 3, 4}, {2, 0, 1, -1}), {2, 3, 1, 4}));
  EXPECT_TRUE(ReshapesTo(ReshapeCase({0, 6}, {0, -1, 2}), {0, 3, 2}));
}

TEST(ReshapeTest, ZeroIsZeroWhereAllowed) {
  EXPECT_TRUE(ReshapesTo(ReshapeCase({0, 3, 4}, {3, 4, 0}, 1), {3, 4, 0}));
}

TEST(ReshapeTest, RefusesShapesThatDoNotFit) {
  const auto refused = [](const OpCase& op_case, const std::string& text) {
    return ExpectError(op_case, absl::StatusCode::kInvalidArgument, {"Reshape", text});
  };
  EXPECT_TRUE(refused(ReshapeCase({2, 3}, {4}), "cannot reshape [2,3] (6 elements) to [4]"));
  EXPECT_TRUE(refused(ReshapeCase({2, 3}, {4, -1}), "do not divide into 4"));
  EXPECT_TRUE(refused(ReshapeCase({2, 3}, {-1, -1}), "-1 more than once"));
  EXPECT_TRUE(refused(ReshapeCase({2, 3}, {-2, 3}), "must be -1 or more"));
  EXPECT_TRUE(refused(ReshapeCase({6}, {6, 0}), "no axis 1"));
  EXPECT_TRUE(refused(ReshapeCase({0, 3}, {0, -1}, 1), "cannot be deduced"));
  EXPECT_TRUE(refused(ReshapeCase({2, 3}, {int64_t{1} << 50, 1}), "must be in 0.."));
}

TEST(ReshapeTest, GradientAndSharding) {
  EXPECT_TRUE(CheckGradient(ReshapeCase({2, 3, 4}, {6, -1})));
  EXPECT_TRUE(CheckGradient(ReshapeCase({0, 4}, {4, 0}, 1)));
  EXPECT_TRUE(CheckSharding(ReshapeCase({6, 4, 24}, {6, 4, 4, 6}), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(ReshapeCase({6, 5, 4}, {30, 4}), {.min_splits = 3}));
  EXPECT_TRUE(CheckSharding(ReshapeCase({30, 4}, {5, 6, 4}), {.min_splits = 3}));
  EXPECT_TRUE(CheckSharding(ReshapeCase({6, 4}, {4, 6}), {.min_splits = 1}));
}

TEST(ReshapeTest, SymbolsSurvive) {
  Graph graph;
  GraphBuilder builder(graph);
  const ValueId x = graph.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), 16, 4, 4})});
  const ValueId flat = builder.Op("Reshape", {x, builder.Ints({0, -1})});
  EXPECT_EQ(builder.type(flat).shape.ToString(), "[N,256]");
  const ValueId rows = builder.Op("Reshape", {x, builder.Ints({-1, 256})});
  EXPECT_EQ(builder.type(rows).shape.ToString(), "[N,256]");
  // As PyTorch exports the packed heads of attention.
  const ValueId heads = builder.Op("Reshape", {x, builder.Ints({8, 2, -1, 16})});
  EXPECT_EQ(builder.type(heads).shape.ToString(), "[8,2,N,16]");
  const ValueId halves = builder.Op("Reshape", {x, builder.Ints({-1, 128})});
  EXPECT_EQ(builder.type(halves).shape.ToString(), "[?,128]");
  const ValueId flattened = builder.Op("Flatten", {x});
  EXPECT_EQ(builder.type(flattened).shape.ToString(), "[N,256]");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
}

TEST(IdentityTest, IsTheSame) {
  const OpCase identity{.op = "Identity", .inputs = {RandomTensor({3, 4}, 1)}};
  EXPECT_TRUE(ExpectOutputs(identity, identity.inputs));
  EXPECT_TRUE(CheckGradient(identity));
  EXPECT_TRUE(CheckSharding(identity, {.min_splits = 4}));
}

OpCase FlattenCase(Shape shape, int64_t axis) {
  return {.op = "Flatten", .attributes = {{"axis", axis}}, .inputs = {RandomTensor(shape, 1)}};
}

TEST(FlattenTest, JoinsTheAxesBeforeAndAfter) {
  EXPECT_TRUE(ReshapesTo(FlattenCase({2, 3, 4, 5}, 0), {1, 120}));
  EXPECT_TRUE(ReshapesTo(FlattenCase({2, 3, 4, 5}, 2), {6, 20}));
  EXPECT_TRUE(ReshapesTo(FlattenCase({2, 3, 4, 5}, 4), {120, 1}));
  EXPECT_TRUE(ReshapesTo(FlattenCase({2, 3, 4, 5}, -1), {24, 5}));
  EXPECT_TRUE(ReshapesTo(FlattenCase({}, 0), {1, 1}));
  EXPECT_TRUE(ReshapesTo(FlattenCase({0, 3, 4}, 1), {0, 12}));
}

TEST(FlattenTest, RefusesAnAxisOutside) {
  EXPECT_TRUE(ExpectError(FlattenCase({2, 3}, 3), absl::StatusCode::kInvalidArgument,
                          {"axis 3 is outside [-2, 2]"}));
}

TEST(FlattenTest, GradientAndSharding) {
  EXPECT_TRUE(CheckGradient(FlattenCase({2, 3, 4}, 1)));
  EXPECT_TRUE(CheckSharding(FlattenCase({4, 6, 5}, 1), {.min_splits = 4}));
}

OpCase AxesCase(const std::string& op, Shape shape, const std::vector<int64_t>& axes) {
  return {.op = op, .inputs = {RandomTensor(shape, 1), Int64s(axes)}};
}

TEST(SqueezeTest, DropsAxesOfOne) {
  EXPECT_TRUE(ReshapesTo(AxesCase("Squeeze", {1, 3, 1, 5}, {0, -2}), {3, 5}));
  const OpCase all{.op = "Squeeze", .inputs = {RandomTensor({1, 3, 1}, 1)}};
  EXPECT_TRUE(ReshapesTo(all, {3}));
}

TEST(SqueezeTest, RefusesOtherAxes) {
  EXPECT_TRUE(ExpectError(AxesCase("Squeeze", {1, 3}, {1}), absl::StatusCode::kInvalidArgument,
                          {"cannot squeeze axis 1 of [1,3]"}));
  EXPECT_TRUE(ExpectError(AxesCase("Squeeze", {1, 1}, {0, -2}), absl::StatusCode::kInvalidArgument,
                          {"axis 0 is named twice"}));
}

TEST(SqueezeTest, GradientAndSharding) {
  EXPECT_TRUE(CheckGradient(AxesCase("Squeeze", {1, 3, 1, 2}, {0, 2})));
  EXPECT_TRUE(CheckSharding(AxesCase("Squeeze", {2, 1, 3}, {1}), {.min_splits = 3}));
  // Split in two, the first axis of the shards would vanish.
  const OpCase all{.op = "Squeeze", .inputs = {RandomTensor({2, 1, 3}, 1)}};
  EXPECT_TRUE(CheckSharding(all, {.min_splits = 0}));
}

TEST(UnsqueezeTest, InsertsAxesOfOne) {
  EXPECT_TRUE(ReshapesTo(AxesCase("Unsqueeze", {3, 4}, {0, 3}), {1, 3, 4, 1}));
  EXPECT_TRUE(ReshapesTo(AxesCase("Unsqueeze", {3, 4}, {-1, 1}), {3, 1, 4, 1}));
  EXPECT_TRUE(ReshapesTo(AxesCase("Unsqueeze", {}, {0}), {1}));
}

TEST(UnsqueezeTest, RefusesAxesOutside) {
  EXPECT_TRUE(ExpectError(AxesCase("Unsqueeze", {3}, {2}), absl::StatusCode::kInvalidArgument,
                          {"axis 2 is outside [-2, 2)"}));
}

TEST(UnsqueezeTest, GradientAndSharding) {
  EXPECT_TRUE(CheckGradient(AxesCase("Unsqueeze", {3, 2}, {1})));
  EXPECT_TRUE(CheckSharding(AxesCase("Unsqueeze", {4, 3}, {0, 2}), {.min_splits = 4}));
}

}  // namespace
}  // namespace weft
