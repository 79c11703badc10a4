#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using testing::CheckSharding;
using testing::ExpectError;
using testing::ExpectOutputs;
using testing::Int64s;
using testing::OpCase;

OpCase FillCase(const std::vector<int64_t>& shape, Attributes attributes = {}) {
  return {.op = "ConstantOfShape", .attributes = attributes, .inputs = {Int64s(shape)}};
}

TEST(ConstantOfShapeTest, FillsWithTheValue) {
  EXPECT_TRUE(
      ExpectOutputs(FillCase({2, 2}), {Tensor::Of<float>({2, 2}, std::vector<float>{0, 0, 0, 0})}));
  const Tensor seven = Tensor::Of<int32_t>({1}, std::vector<int32_t>{7});
  EXPECT_TRUE(ExpectOutputs(FillCase({3}, {{"value", seven}}),
                            {Tensor::Of<int32_t>({3}, std::vector<int32_t>{7, 7, 7})}));
  EXPECT_TRUE(ExpectOutputs(FillCase({}, {{"value", seven}}), {Tensor::Scalar<int32_t>(7)}));
  EXPECT_TRUE(ExpectOutputs(FillCase({0, 3}), {Tensor::Of<float>({0, 3}, std::vector<float>{})}));
}

TEST(ConstantOfShapeTest, FillsElementsSmallerThanAByte) {
  for (const DType dtype : {DType::kInt4, DType::kFloat6E3M2}) {
    const Tensor five = *CastTensor(Tensor::Of<int32_t>({1}, std::vector<int32_t>{5}), dtype);
    const auto outputs = testing::RunOp(FillCase({5}, {{"value", five}}));
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ((*outputs)[0].dtype(), dtype);
    EXPECT_EQ(*ToInt64s((*outputs)[0]), (std::vector<int64_t>{5, 5, 5, 5, 5}));
  }
}

TEST(ConstantOfShapeTest, LargeTensors) {
  const Tensor half = Tensor::Of<float>({1}, std::vector<float>{0.5f});
  EXPECT_TRUE(ExpectOutputs(FillCase({300, 1001}, {{"value", half}}),
                            {Tensor::Of<float>({300, 1001}, std::vector<float>(300300, 0.5f))}));
}

TEST(ConstantOfShapeTest, RefusesImpossibleShapesAndValues) {
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_TRUE(ExpectError(FillCase({2, -1}), code, {"dimension of -1"}));
  EXPECT_TRUE(ExpectError(FillCase({int64_t{1} << 40, int64_t{1} << 40}), code, {"2^63-1"}));
  EXPECT_TRUE(
      ExpectError(FillCase({2}, {{"value", Tensor::Of<float>({2}, std::vector<float>{1, 2})}}),
                  code, {"must have one element"}));
}

TEST(ConstantOfShapeTest, Sharding) {
  EXPECT_TRUE(CheckSharding(FillCase({4, 6}), {.min_splits = 4}));
}

template <typename T>
OpCase RangeCase(T start, T limit, T delta) {
  return {.op = "Range",
          .inputs = {Tensor::Scalar<T>(start), Tensor::Scalar<T>(limit), Tensor::Scalar<T>(delta)}};
}

TEST(RangeTest, StepsUpAndDown) {
  EXPECT_TRUE(
      ExpectOutputs(RangeCase<float>(1, 5, 2), {Tensor::Of<float>({2}, std::vector<float>{1, 3})}));
  EXPECT_TRUE(ExpectOutputs(RangeCase<int32_t>(10, 4, -2),
                            {Tensor::Of<int32_t>({3}, std::vector<int32_t>{10, 8, 6})}));
  EXPECT_TRUE(ExpectOutputs(RangeCase<int64_t>(0, 5, 2), {Int64s({0, 2, 4})}));
  EXPECT_TRUE(ExpectOutputs(RangeCase<int64_t>(5, 0, 1), {Int64s({})}));
  const int32_t lowest = std::numeric_limits<int32_t>::min();
  const int32_t highest = std::numeric_limits<int32_t>::max();
  EXPECT_TRUE(
      ExpectOutputs(RangeCase<int32_t>(lowest, highest, highest),
                    {Tensor::Of<int32_t>({3}, std::vector<int32_t>{lowest, -1, highest - 1})}));
}

TEST(RangeTest, RefusesEndlessRanges) {
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_TRUE(ExpectError(RangeCase<int64_t>(0, 5, 0), code, {"delta is 0"}));
  EXPECT_TRUE(ExpectError(RangeCase<float>(0, 5, 0), code, {"no range leads from 0 to 5"}));
}

}  // namespace
}  // namespace weft
