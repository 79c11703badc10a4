#include <limits>

#include "gmock/gmock.h"
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

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

Tensor Digits(int64_t count) {
  std::vector<int32_t> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<int32_t>(i);
  return Tensor::Of<int32_t>(Shape{count}, values);
}

OpCase SliceCase(Tensor data, const std::vector<int64_t>& starts, const std::vector<int64_t>& ends,
                 const std::vector<int64_t>& axes = {}, const std::vector<int64_t>& steps = {}) {
  OpCase op_case{.op = "Slice", .inputs = {std::move(data), Int64s(starts), Int64s(ends)}};
  if (!axes.empty() || !steps.empty()) {
    op_case.inputs.push_back(axes.empty() ? Tensor() : Int64s(axes));
  }
  if (!steps.empty()) op_case.inputs.push_back(Int64s(steps));
  return op_case;
}

// 0..9 from `start` to `end` in steps of `step`.
::testing::AssertionResult SlicesTo(int64_t start, int64_t end, int64_t step,
                                    const std::vector<int32_t>& expected) {
  const Tensor tensor = Tensor::Of<int32_t>(Shape{static_cast<int64_t>(expected.size())}, expected);
  return ExpectOutputs(SliceCase(Digits(10), {start}, {end}, {0}, {step}), {tensor});
}

TEST(SliceTest, PositionsAsInNumpy) {
  EXPECT_TRUE(SlicesTo(2, 5, 1, {2, 3, 4}));
  EXPECT_TRUE(SlicesTo(1, 9, 3, {1, 4, 7}));
  EXPECT_TRUE(SlicesTo(-3, -1, 1, {7, 8}));
  EXPECT_TRUE(SlicesTo(7, 100, 1, {7, 8, 9}));
  EXPECT_TRUE(SlicesTo(-100, 2, 1, {0, 1}));
  EXPECT_TRUE(SlicesTo(5, 5, 1, {}));
  EXPECT_TRUE(SlicesTo(8, 3, 1, {}));
  EXPECT_TRUE(SlicesTo(100, 200, 1, {}));
  EXPECT_TRUE(SlicesTo(0, kHighest, kHighest, {0}));
}

TEST(SliceTest, NegativeSteps) {
  EXPECT_TRUE(SlicesTo(5, 2, -1, {5, 4, 3}));
  EXPECT_TRUE(SlicesTo(100, kLowest, -4, {9, 5, 1}));
  EXPECT_TRUE(SlicesTo(-1, -4, -1, {9, 8, 7}));
  EXPECT_TRUE(SlicesTo(2, -100, -1, {2, 1, 0}));
  EXPECT_TRUE(SlicesTo(3, kLowest, kLowest, {3}));
  EXPECT_TRUE(SlicesTo(2, 5, -1, {}));
}

TEST(SliceTest, SeveralAxes) {
  const Tensor data = Digits(24).Reshaped({2, 3, 4});
  EXPECT_TRUE(ExpectOutputs(
      SliceCase(data, {1, 0}, {3, -1}, {-1, 1}),
      {Tensor::Of<int32_t>({2, 2, 2}, std::vector<int32_t>{1, 2, 5, 6, 13, 14, 17, 18})}));
  EXPECT_TRUE(ExpectOutputs(
      SliceCase(data, {1}, {2}),
      {Tensor::Of<int32_t>({1, 3, 4},
                           std::vector<int32_t>{12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23})}));
  EXPECT_TRUE(ExpectOutputs(
      SliceCase(data, {0, 2, 3}, {2, 0, 0}, {}, {1, -1, -2}),
      {Tensor::Of<int32_t>({2, 2, 2}, std::vector<int32_t>{11, 9, 7, 5, 23, 21, 19, 17})}));
}

TEST(SliceTest, Int32Positions) {
  OpCase op_case{.op = "Slice",
                 .inputs = {Digits(4), Tensor::Of<int32_t>(Shape{1}, std::vector<int32_t>{1}),
                            Tensor::Of<int32_t>(Shape{1}, std::vector<int32_t>{3})}};
  EXPECT_TRUE(ExpectOutputs(op_case, {Tensor::Of<int32_t>({2}, std::vector<int32_t>{1, 2})}));
}

TEST(SliceTest, TensorsWithoutElements) {
  const OpCase op_case = SliceCase(RandomTensor({0, 3}, 1), {0, 2}, {5, 0}, {0, 1}, {1, -1});
  EXPECT_TRUE(ExpectOutputs(op_case, {RandomTensor({0, 2}, 1)}));
  EXPECT_TRUE(ExpectOutputs(SliceCase(RandomTensor({0}, 1), {5}, {kLowest}, {0}, {-1}),
                            {RandomTensor({0}, 1)}));
}

TEST(SliceTest, RefusesListsThatDoNotFit) {
  const auto refused = [](const OpCase& op_case, const std::string& text) {
    return ExpectError(op_case, absl::StatusCode::kInvalidArgument, {"Slice", text});
  };
  EXPECT_TRUE(refused(SliceCase(Digits(4), {0}, {1}, {0}, {0}), "the step of axis 0 is 0"));
  EXPECT_TRUE(refused(SliceCase(Digits(4), {0}, {1, 2}), "must be equally long"));
  EXPECT_TRUE(refused(SliceCase(Digits(4), {0}, {1}, {1}), "axis 1 is outside [-1, 1)"));
  EXPECT_TRUE(refused(SliceCase(Digits(4).Reshaped({2, 2}), {0, 0}, {1, 1}, {0, -2}),
                      "axis 0 is sliced twice"));
  EXPECT_TRUE(refused(SliceCase(Digits(4), {0, 0}, {1, 1}),
                      "starts and ends have 2 elements, but the input has 1 axes"));
}

// A fuzzer's find: a file declared 'starts' to have 2^40 elements, and so many were reserved.
TEST(SliceTest, RefusesADeclaredLengthThatNoSliceHas) {
  Graph graph;
  const ValueId x = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{20, 10}});
  const ValueType list{ValueKind::kTensor, DType::kInt64, Shape{int64_t{1} << 40}};
  GraphBuilder builder(graph);
  builder.Op("Slice", {x, graph.AddInput("starts", list), graph.AddInput("ends", list)});
  EXPECT_EQ(builder.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(builder.status().message()),
              ::testing::HasSubstr("1099511627776 elements, but the input has 2 axes"));
}

// Elements travel with shapes of symbols, so that a list may be shorter than its partner says.
TEST(SliceTest, RefusesStartsOfWhichTooFewAreKnown) {
  Graph graph;
  const ValueId x = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{20, 10}});
  const ValueId n =
      graph.AddInput("n", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N")})});
  GraphBuilder builder(graph);
  const ValueId starts = builder.Op("Reshape", {builder.Ints({1}), builder.Op("Shape", {n})});
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  builder.Op("Slice", {x, starts, builder.Ints({2, 2})});
  EXPECT_EQ(builder.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(builder.status().message()),
              ::testing::HasSubstr("input 1 has 1 elements for 2 axes"));
}

TEST(SliceTest, NoStepsAreStepsOfOne) {
  const OpCase op_case{
      .op = "Slice",
      .inputs = {Int64s({4, 5, 6, 7}), Int64s({1}), Int64s({3}), Int64s({0}), Int64s({})}};
  EXPECT_TRUE(ExpectOutputs(op_case, {Int64s({5, 6})}));
}

TEST(SliceTest, Gradient) {
  EXPECT_TRUE(CheckGradient(SliceCase(RandomTensor({5, 4}, 1), {1}, {3})));
  EXPECT_TRUE(
      CheckGradient(SliceCase(RandomTensor({5, 4}, 1), {0, 3}, {5, kLowest}, {0, 1}, {2, -2})));
  EXPECT_TRUE(CheckGradient(SliceCase(RandomTensor({2, 3}, 1), {0}, {2})));
  EXPECT_TRUE(CheckGradient(SliceCase(RandomTensor({4, 3}, 1), {2}, {2}, {0})));
}

TEST(SliceTest, Sharding) {
  EXPECT_TRUE(
      CheckSharding(SliceCase(RandomTensor({4, 6, 3}, 1), {1}, {3}, {1}), {.min_splits = 4}));
  EXPECT_TRUE(CheckSharding(SliceCase(RandomTensor({4, 6}, 1), {0, -3}, {kHighest, 5}, {0, 1}),
                            {.min_splits = 2}));
}

OpCase SliceGradCase(Tensor dy, const std::vector<int64_t>& shape, std::vector<int64_t> starts,
                     std::vector<int64_t> ends, std::vector<int64_t> axes) {
  return {.domain = "ai.weft",
          .op = "SliceGrad",
          .inputs = {std::move(dy), Int64s(shape), Int64s(starts), Int64s(ends), Int64s(axes)}};
}

TEST(SliceGradTest, PutsTheSliceBetweenZeros) {
  const OpCase op_case = SliceGradCase(Tensor::Of<float>({2, 1}, std::vector<float>{5, 6}), {3, 2},
                                       {1, 0}, {3, 1}, {0, 1});
  EXPECT_TRUE(
      ExpectOutputs(op_case, {Tensor::Of<float>({3, 2}, std::vector<float>{0, 0, 5, 0, 6, 0})}));
}

TEST(SliceGradTest, RefusesAShapeThatTheSliceDoesNotFit) {
  EXPECT_TRUE(ExpectError(SliceGradCase(RandomTensor({2}, 1), {4}, {0}, {3}, {0}),
                          absl::StatusCode::kInvalidArgument, {"does not have the shape [2]"}));
}

TEST(SliceGradTest, GradientAndSharding) {
  const OpCase op_case =
      SliceGradCase(RandomTensor({4, 2, 3}, 1), {4, 5, 3}, {0, 1}, {4, 3}, {0, 1});
  EXPECT_TRUE(CheckGradient(op_case));
  EXPECT_TRUE(CheckSharding(op_case, {.min_splits = 4}));
}

}  // namespace
}  // namespace weft
