#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using testing::CheckGradient;
using testing::CheckKernelAgainstReference;
using testing::CheckSharding;
using testing::ExpectError;
using testing::ExpectOutputs;
using testing::Int64s;
using testing::OpCase;
using testing::RandomTensor;

OpCase GatherCase(Tensor data, Tensor indices, int64_t axis = 0) {
  return {.op = "Gather",
          .attributes = {{"axis", axis}},
          .inputs = {std::move(data), std::move(indices)}};
}

Tensor Table() { return Tensor::Of<int32_t>({3, 2}, std::vector<int32_t>{1, 2, 3, 4, 5, 6}); }

TEST(GatherTest, TakesRows) {
  EXPECT_TRUE(ExpectOutputs(GatherCase(Table(), Int64s({2, 0, 2})),
                            {Tensor::Of<int32_t>({3, 2}, std::vector<int32_t>{5, 6, 1, 2, 5, 6})}));
  EXPECT_TRUE(ExpectOutputs(GatherCase(Table(), Int64s({-1, -3})),
                            {Tensor::Of<int32_t>({2, 2}, std::vector<int32_t>{5, 6, 1, 2})}));
  EXPECT_TRUE(ExpectOutputs(GatherCase(Table(), Tensor::Scalar<int64_t>(1)),
                            {Tensor::Of<int32_t>({2}, std::vector<int32_t>{3, 4})}));
}

TEST(GatherTest, TakesAlongAnyAxis) {
  EXPECT_TRUE(ExpectOutputs(
      GatherCase(Table(), Int64s({1, 1, 0}), 1),
      {Tensor::Of<int32_t>({3, 3}, std::vector<int32_t>{2, 2, 1, 4, 4, 3, 6, 6, 5})}));
  EXPECT_TRUE(
      ExpectOutputs(GatherCase(Table(), Int64s({0, 1}).Reshaped({2, 1}), -1),
                    {Tensor::Of<int32_t>({3, 2, 1}, std::vector<int32_t>{1, 2, 3, 4, 5, 6})}));
}

TEST(GatherTest, Int32IndicesAndOtherDtypes) {
  const Tensor indices = Tensor::Of<int32_t>({2}, std::vector<int32_t>{2, -3});
  const Tensor bytes = Tensor::Of<uint8_t>({3}, std::vector<uint8_t>{7, 8, 9});
  EXPECT_TRUE(ExpectOutputs(GatherCase(bytes, indices),
                            {Tensor::Of<uint8_t>({2}, std::vector<uint8_t>{9, 7})}));
}

TEST(GatherTest, NothingToTake) {
  EXPECT_TRUE(ExpectOutputs(GatherCase(Table(), Int64s({})),
                            {Tensor::Of<int32_t>({0, 2}, std::vector<int32_t>{})}));
  EXPECT_TRUE(
      ExpectOutputs(GatherCase(RandomTensor({3, 0}, 1), Int64s({1})), {RandomTensor({1, 0}, 1)}));
}

TEST(GatherTest, LargeTablesOnSeveralThreads) {
  const Tensor table = RandomTensor({512, 192}, 1);
  const Tensor indices = RandomTensor({64, 33}, 2, -512, 512, DType::kInt64);
  std::vector<float> expected;
  for (int64_t index : indices.data<int64_t>()) {
    if (index < 0) index += 512;
    const auto row = table.data<float>().subspan(index * 192, 192);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  EXPECT_TRUE(ExpectOutputs(GatherCase(table, indices),
                            {Tensor::Of<float>({64, 33, 192}, expected)}, {.of_magnitude = 0}));
}

TEST(GatherTest, AnIndexOutsideIsNamedWithItsPlace) {
  const auto code = absl::StatusCode::kInvalidArgument;
  const Tensor indices = Int64s({0, 1, 2, 3}).Reshaped({2, 2});
  EXPECT_TRUE(ExpectError(
      GatherCase(Table(), indices), code,
      {"Gather", "the index at [1,1] is 3", "axis 0 of the data has 3 rows", "[-3, 3)"}));
  EXPECT_TRUE(ExpectError(GatherCase(Table(), Int64s({-4})), code, {"the index at [0] is -4"}));
  EXPECT_TRUE(ExpectError(GatherCase(RandomTensor({0, 2}, 1), Int64s({0})), code, {"has 0 rows"}));
}

TEST(GatherTest, Gradient) {
  const Tensor data = RandomTensor({4, 3}, 1);
  EXPECT_TRUE(CheckGradient(GatherCase(data, Int64s({1, 1, -1, 0}))));
  EXPECT_TRUE(CheckGradient(GatherCase(data, Int64s({2, 0, 2}), 1)));
  EXPECT_TRUE(CheckGradient(GatherCase(data, Tensor::Scalar<int64_t>(2))));
}

TEST(GatherTest, Sharding) {
  const Tensor indices = RandomTensor({4, 3}, 2, 0, 5, DType::kInt64);
  EXPECT_TRUE(CheckSharding(GatherCase(RandomTensor({5, 6}, 1), indices), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(GatherCase(RandomTensor({6, 5}, 1), indices, 1), {.min_splits = 6}));
}

OpCase GatherGradCase(Tensor dy, Tensor indices, const std::vector<int64_t>& shape,
                      int64_t axis = 0) {
  return {.domain = "ai.weft",
          .op = "GatherGrad",
          .attributes = {{"axis", axis}},
          .inputs = {std::move(dy), std::move(indices), Int64s(shape)}};
}

TEST(GatherGradTest, AddsRowsThatWereTakenTwice) {
  const OpCase op_case = GatherGradCase(
      Tensor::Of<float>({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}), Int64s({2, 0, -1}), {3, 2});
  EXPECT_TRUE(
      ExpectOutputs(op_case, {Tensor::Of<float>({3, 2}, std::vector<float>{3, 4, 0, 0, 6, 8})}));
}

TEST(GatherGradTest, AgreesWithTheReference) {
  const Tensor indices = RandomTensor({16, 9}, 2, -65, 65, DType::kInt64);
  for (const int64_t width : {1, 15, 16, 17, 128, 1031}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        GatherGradCase(RandomTensor({16, 9, width}, 3), indices, {65, width})));
  }
  EXPECT_TRUE(CheckKernelAgainstReference(
      GatherGradCase(RandomTensor({3, 16, 9, 5}, 3), indices, {3, 65, 5}, 1)));
}

TEST(GatherGradTest, NothingWasTaken) {
  EXPECT_TRUE(ExpectOutputs(GatherGradCase(RandomTensor({0, 2}, 1), Int64s({}), {2, 2}),
                            {Tensor::Of<float>({2, 2}, std::vector<float>{0, 0, 0, 0})}));
}

TEST(GatherGradTest, AnIndexOutsideIsAnError) {
  EXPECT_TRUE(ExpectError(GatherGradCase(RandomTensor({1, 2}, 1), Int64s({3}), {3, 2}),
                          absl::StatusCode::kInvalidArgument, {"the index at [0] is 3"}));
}

TEST(GatherGradTest, GradientAndSharding) {
  const OpCase op_case = GatherGradCase(RandomTensor({4, 3, 6}, 1),
                                        RandomTensor({4, 3}, 2, 0, 5, DType::kInt64), {5, 6});
  EXPECT_TRUE(CheckGradient(op_case));
  EXPECT_TRUE(CheckSharding(op_case, {.min_splits = 6}));
}

}  // namespace
}  // namespace weft
