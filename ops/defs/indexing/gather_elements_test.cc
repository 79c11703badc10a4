#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

OpCase Gathered(Shape data, Shape indices, int64_t axis, DType dtype = DType::kFloat32) {
  const double size = static_cast<double>(data.dim(axis < 0 ? axis + data.rank() : axis));
  return {.op = "GatherElements",
          .attributes = {{"axis", axis}},
          .inputs = {RandomTensor(std::move(data), 1, -9, 9, dtype),
                     RandomTensor(std::move(indices), 2, -size, size, DType::kInt64)}};
}

TEST(GatherElements, KnownValues) {
  const OpCase op_case{.op = "GatherElements",
                       .attributes = {{"axis", int64_t{1}}},
                       .inputs = {Tensor::Of<float>({2, 2}, std::vector<float>{1, 2, 3, 4}),
                                  Int64s({0, 0, -1, 0}).Reshaped({2, 2})}};
  EXPECT_TRUE(ExpectOutputs(op_case, {Tensor::Of<float>({2, 2}, std::vector<float>{1, 1, 4, 3})}));
}

TEST(GatherElements, AgreesWithTheReference) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt8, DType::kBfloat16}) {
    EXPECT_TRUE(CheckKernelAgainstReference(Gathered({4, 5, 3}, {4, 7, 3}, 1, dtype)));
  }
  EXPECT_TRUE(CheckKernelAgainstReference(Gathered({4, 5, 3}, {2, 5, 1}, 0)));
  EXPECT_TRUE(CheckKernelAgainstReference(Gathered({4, 5, 3}, {3, 2, 6}, -1)));
  EXPECT_TRUE(CheckKernelAgainstReference(Gathered({4, 5}, {0, 5}, 0)));
  EXPECT_TRUE(CheckKernelAgainstReference(Gathered({6}, {11}, 0)));
}

TEST(GatherElements, Gradients) {
  EXPECT_TRUE(CheckGradient(Gathered({4, 5, 3}, {4, 7, 3}, 1)));
  EXPECT_TRUE(CheckGradient(Gathered({4, 3}, {2, 3}, 0)));
}

TEST(GatherElements, Shardings) {
  EXPECT_TRUE(CheckSharding(Gathered({4, 5, 3}, {4, 7, 3}, 1), {.min_splits = 6}));
  OpCase backward{.domain = "ai.weft",
                  .op = "GatherElementsGrad",
                  .attributes = {{"axis", int64_t{1}}},
                  .inputs = {RandomTensor({4, 7, 3}, 3),
                             RandomTensor({4, 7, 3}, 2, 0, 5, DType::kInt64), Int64s({4, 5, 3})}};
  EXPECT_TRUE(CheckKernelAgainstReference(backward));
  EXPECT_TRUE(CheckSharding(backward, {.min_splits = 6}));
}

TEST(GatherElements, IndicesOutOfRangeAreNamed) {
  OpCase op_case = Gathered({4, 5}, {4, 2}, 1);
  op_case.inputs[1].mutable_data<int64_t>()[3] = 5;
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument,
                          {"GatherElements", "index 5 at element 3", "[-5, 5) of axis 1"}));
}

TEST(GatherElements, ShapesThatDoNotFitAreNamed) {
  EXPECT_TRUE(ExpectError(Gathered({4, 5}, {5, 5}, 1), absl::StatusCode::kInvalidArgument,
                          {"indices [5,5]", "data [4,5]", "axis 1"}));
}

}  // namespace
}  // namespace weft::testing
