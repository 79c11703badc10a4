#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using testing::AwkwardShapes;
using testing::CheckGradient;
using testing::CheckKernelAgainstReference;
using testing::CheckSharding;
using testing::ExpectError;
using testing::ExpectOutputs;
using testing::OpCase;
using testing::RandomTensor;

OpCase ScaleCase(Shape shape, DType dtype = DType::kFloat32) {
  return {.domain = "ai.weft",
          .op = "Scale",
          .inputs = {RandomTensor(shape, 1, -1, 1, dtype), RandomTensor({}, 2, -1, 1, dtype)}};
}

TEST(ScaleTest, AgreesWithTheReference) {
  for (const Shape& shape : AwkwardShapes()) {
    EXPECT_TRUE(CheckKernelAgainstReference(ScaleCase(shape)));
  }
  EXPECT_TRUE(CheckKernelAgainstReference(ScaleCase({300, 1001})));
  EXPECT_TRUE(
      CheckKernelAgainstReference(ScaleCase({37}, DType::kBfloat16), {.of_magnitude = 0.01}));
}

TEST(ScaleTest, RefusesAScaleThatIsNoScalar) {
  OpCase op_case = ScaleCase({3});
  op_case.inputs[1] = RandomTensor({3}, 2);
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument,
                          {"input s is float32[3]; it must be a scalar"}));
}

TEST(ScaleTest, GradientAndSharding) {
  EXPECT_TRUE(CheckGradient(ScaleCase({3, 4})));
  EXPECT_TRUE(CheckSharding(ScaleCase({4, 6}), {.min_splits = 4}));
}

OpCase AddNCase(Shape shape, int inputs, DType dtype = DType::kFloat32) {
  OpCase op_case{.domain = "ai.weft", .op = "AddN", .inputs = {}};
  for (int i = 0; i < inputs; ++i) {
    op_case.inputs.push_back(RandomTensor(shape, i, -10, 10, dtype));
  }
  return op_case;
}

TEST(AddNTest, AgreesWithTheReference) {
  for (const Shape& shape : AwkwardShapes()) {
    EXPECT_TRUE(CheckKernelAgainstReference(AddNCase(shape, 3)));
  }
  EXPECT_TRUE(CheckKernelAgainstReference(AddNCase({300, 1001}, 5)));
  EXPECT_TRUE(CheckKernelAgainstReference(AddNCase({5}, 1)));
  EXPECT_TRUE(CheckKernelAgainstReference(AddNCase({37}, 4, DType::kInt32)));
}

// 65504 is the largest float16: the sum of the first two is larger, that of all is not.
TEST(AddNTest, SmallFloatsAreRoundedOnce) {
  const auto half = [](float value) { return Tensor::Scalar<Float16>(ToFloat16(value)); };
  const OpCase op_case{
      .domain = "ai.weft", .op = "AddN", .inputs = {half(60000), half(60000), half(-60000)}};
  EXPECT_TRUE(ExpectOutputs(op_case, {half(60000)}));
}

TEST(AddNTest, RefusesOtherShapes) {
  OpCase op_case = AddNCase({3}, 2);
  op_case.inputs[1] = RandomTensor({4}, 1);
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument,
                          {"input 1 has shape [4], the inputs before have [3]"}));
}

TEST(AddNTest, GradientAndSharding) {
  EXPECT_TRUE(CheckGradient(AddNCase({2, 3}, 3)));
  EXPECT_TRUE(CheckSharding(AddNCase({4, 6}, 3), {.min_splits = 4}));
}

}  // namespace
}  // namespace weft
