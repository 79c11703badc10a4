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

OpCase ExpandCase(Tensor input, const std::vector<int64_t>& shape) {
  return {.op = "Expand", .inputs = {std::move(input), Int64s(shape)}};
}

TEST(ExpandTest, RepeatsAlongAxesOfOne) {
  const Tensor column = Tensor::Of<int32_t>({2, 1}, std::vector<int32_t>{1, 2});
  EXPECT_TRUE(ExpectOutputs(ExpandCase(column, {2, 3}),
                            {Tensor::Of<int32_t>({2, 3}, std::vector<int32_t>{1, 1, 1, 2, 2, 2})}));
  EXPECT_TRUE(ExpectOutputs(
      ExpandCase(column, {2, 1, 2}),
      {Tensor::Of<int32_t>({2, 2, 2}, std::vector<int32_t>{1, 1, 2, 2, 1, 1, 2, 2})}));
  EXPECT_TRUE(
      ExpectOutputs(ExpandCase(Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{3, 4}), {2, 1}),
                    {Tensor::Of<int32_t>({2, 2}, std::vector<int32_t>{3, 4, 3, 4})}));
}

TEST(ExpandTest, TheShapeMayBeSmaller) {
  const Tensor input = RandomTensor({3, 2}, 1);
  EXPECT_TRUE(ExpectOutputs(ExpandCase(input, {1}), {input}));
  EXPECT_TRUE(ExpectOutputs(ExpandCase(input, {}), {input}));
}

TEST(ExpandTest, ToNothing) {
  EXPECT_TRUE(
      ExpectOutputs(ExpandCase(RandomTensor({1, 3}, 1), {0, 3}), {RandomTensor({0, 3}, 1)}));
}

TEST(ExpandTest, RefusesOtherSizes) {
  EXPECT_TRUE(ExpectError(ExpandCase(RandomTensor({2, 3}, 1), {2, 4}),
                          absl::StatusCode::kInvalidArgument, {"cannot expand [2,3] to [2,4]"}));
}

TEST(ExpandTest, GradientAndSharding) {
  EXPECT_TRUE(CheckGradient(ExpandCase(RandomTensor({2, 1, 3}, 1), {4, 2, 5, 1})));
  EXPECT_TRUE(
      CheckSharding(ExpandCase(RandomTensor({4, 1, 6}, 1), {3, 4, 5, 6}), {.min_splits = 8}));
}

OpCase TileCase(Tensor input, const std::vector<int64_t>& repeats) {
  return {.op = "Tile", .inputs = {std::move(input), Int64s(repeats)}};
}

TEST(TileTest, RepeatsTheWholeTensor) {
  const Tensor input = Tensor::Of<int32_t>({2, 2}, std::vector<int32_t>{1, 2, 3, 4});
  EXPECT_TRUE(ExpectOutputs(
      TileCase(input, {2, 3}),
      {Tensor::Of<int32_t>({4, 6}, std::vector<int32_t>{1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4,
                                                        1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4})}));
  EXPECT_TRUE(ExpectOutputs(TileCase(input, {0, 1}),
                            {Tensor::Of<int32_t>({0, 2}, std::vector<int32_t>{})}));
}

TEST(TileTest, RefusesAnotherNumberOfRepeats) {
  EXPECT_TRUE(ExpectError(TileCase(RandomTensor({2}, 1), {1, 2}),
                          absl::StatusCode::kInvalidArgument, {"repeats has 2 elements"}));
}

TEST(TileTest, GradientAndSharding) {
  EXPECT_TRUE(CheckGradient(TileCase(RandomTensor({2, 3}, 1), {3, 2})));
  EXPECT_TRUE(CheckSharding(TileCase(RandomTensor({4, 6}, 1), {3, 2}), {.min_splits = 4}));
}

}  // namespace
}  // namespace weft
