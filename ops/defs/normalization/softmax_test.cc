#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// Small probabilities are as accurate as large ones; their logarithms near 0 cancel.
constexpr Tolerance kTolerance = {.of_magnitude = 2e-7, .of_element = 2e-6};

class SoftmaxTest : public ::testing::TestWithParam<const char*> {
 protected:
  OpCase Case(Tensor x, int64_t axis) const {
    return {.op = GetParam(), .attributes = {{"axis", axis}}, .inputs = {std::move(x)}};
  }
};

TEST_P(SoftmaxTest, EveryAxis) {
  for (int axis = -4; axis < 4; ++axis) {
    EXPECT_TRUE(
        CheckKernelAgainstReference(Case(RandomTensor({3, 17, 5, 7}, 1, -5, 5), axis), kTolerance));
  }
}

TEST_P(SoftmaxTest, AwkwardShapes) {
  for (const Shape& shape : AwkwardShapes()) {
    for (const int64_t axis : {-1, 0}) {
      EXPECT_TRUE(CheckKernelAgainstReference(Case(RandomTensor(shape, 1, -5, 5), axis)));
    }
  }
}

TEST_P(SoftmaxTest, DefaultAxisIsTheLast) {
  const OpCase op_case{.op = GetParam(), .inputs = {RandomTensor({3, 5}, 1)}};
  EXPECT_TRUE(CheckKernelAgainstReference(op_case));
  EXPECT_TRUE(BitwiseEqual(RunOp(op_case)->at(0), RunOp(Case(op_case.inputs[0], 1))->at(0)));
}

TEST_P(SoftmaxTest, LongRowsAndColumns) {
  const Tensor x = RandomTensor({3, 50'021}, 1, -2, 2);
  EXPECT_TRUE(CheckKernelAgainstReference(Case(x, 1), kTolerance));
  EXPECT_TRUE(CheckKernelAgainstReference(Case(x.Reshaped({50'021, 3}), 0), kTolerance));
}

TEST_P(SoftmaxTest, ShortRowsAreTheSameAloneAndBesideOthers) {
  std::vector<int64_t> sizes = {48, 77, 128, 197, 255, 256, 257, 511, 512, 513};
  for (int64_t size = 1; size <= 40; ++size) sizes.push_back(size);
  for (const int64_t size : sizes) {
    const Tensor x = RandomTensor({7, size}, 1, -5, 5);
    EXPECT_TRUE(CheckKernelAgainstReference(Case(x, 1), kTolerance)) << size;
    const Tensor all = RunOp(Case(x, 1))->at(0);
    for (int64_t row = 0; row < 7; ++row) {
      const auto row_of = [&](const Tensor& of) {
        const float* const first = of.data<float>().data() + row * size;
        return Tensor::Of<float>({1, size}, std::vector<float>(first, first + size));
      };
      EXPECT_TRUE(BitwiseEqual(row_of(all), RunOp(Case(row_of(x), 1))->at(0)))
          << "row " << row << " of " << size;
    }
  }
}

TEST_P(SoftmaxTest, LargeNumbersDoNotOverflow) {
  const Tensor x =
      Tensor::Of<float>({2, 4}, std::vector<float>{0, 1, 2, 3, 10000, 10001, 10002, 10003});
  for (const int64_t axis : {0, 1}) EXPECT_TRUE(CheckKernelAgainstReference(Case(x, axis)));
}

TEST_P(SoftmaxTest, NanReachesItsWholeRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Tensor x = Tensor::Of<float>({2, 3}, std::vector<float>{1, nan, 2, 3, 1, 2});
  for (const Tensor& y :
       {RunOp(Case(x, 1))->at(0), RunOp(Case(x, 1), Kernels::kReference)->at(0)}) {
    EXPECT_TRUE(std::isnan(y.data<float>()[0]));
    EXPECT_TRUE(std::isnan(y.data<float>()[2]));
    EXPECT_FALSE(std::isnan(y.data<float>()[3]));
  }
}

// Lanes behind a row do not count, though all of the row is as low as they are.
TEST(Softmax, RowsWithoutFiniteNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int64_t size : {1, 3, 8, 16, 21, 50}) {
    std::vector<float> values(2 * size, -infinity);
    values[size] = 1;
    const Tensor x = Tensor::Of<float>({2, size}, values);
    const Tensor y = RunOp({.op = "Softmax", .inputs = {x}})->at(0);
    for (int64_t i = 0; i < size; ++i) {
      EXPECT_TRUE(std::isnan(y.data<float>()[i])) << size;
      EXPECT_EQ(y.data<float>()[size + i], i == 0 ? 1 : 0) << size;
    }
  }
}

TEST_P(SoftmaxTest, OtherTypes) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    EXPECT_TRUE(CheckKernelAgainstReference(Case(RandomTensor({4, 9}, 1, -3, 3, dtype), 1),
                                            {.of_magnitude = 5e-3}));
  }
}

// The function by which the standard defines Softmax, step by step.
TEST(Softmax, Float16IsRoundedAsTheStandardsFunctionIs) {
  const auto step = [](const std::string& op, std::vector<Tensor> inputs) {
    const auto outputs = RunOp({.op = op, .inputs = std::move(inputs)});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs->at(0);
  };
  const Tensor x = RandomTensor({8, 11}, 1, -4, 4, DType::kFloat16);
  const Tensor last = Int64s({-1});
  const Tensor powers = step("Exp", {step("Sub", {x, step("ReduceMax", {x, last})})});
  const Tensor expected = step("Div", {powers, step("ReduceSum", {powers, last})});
  const auto softmax = RunOp({.op = "Softmax", .inputs = {x}});
  ASSERT_TRUE(softmax.ok()) << softmax.status();
  EXPECT_TRUE(TensorsNear(softmax->at(0), expected, {.of_magnitude = 0}));
}

// Their sum is beyond the largest float16.
TEST(Softmax, LongRowsOfFloat16DoNotOverflow) {
  const auto y =
      RunOp({.op = "Softmax", .inputs = {*Tensor::Zeros(DType::kFloat16, Shape{1, 100000})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_NEAR(ToDoubles(y->at(0))->at(77), 1e-5, 1e-7);
}

TEST_P(SoftmaxTest, TwoThreadsGiveTheBitsOfOne) {
  EXPECT_TRUE(SameBitsOnTwoThreads(Case(RandomTensor({1031, 129}, 1, -5, 5), 1)));
  EXPECT_TRUE(SameBitsOnTwoThreads(Case(RandomTensor({129, 1031}, 1, -5, 5), 0)));
}

TEST_P(SoftmaxTest, Gradients) {
  EXPECT_TRUE(CheckGradient(Case(RandomTensor({3, 7}, 1, -2, 2), -1)));
  EXPECT_TRUE(CheckGradient(Case(RandomTensor({3, 5, 2}, 1, -2, 2), 1)));
  EXPECT_TRUE(CheckGradient(Case(RandomTensor({5, 3}, 1, -2, 2), 0)));
}

TEST_P(SoftmaxTest, SplitsAllAxesButItsOwn) {
  EXPECT_TRUE(CheckSharding(Case(RandomTensor({4, 6, 5}, 1, -2, 2), 1), {.min_splits = 4}));
}

TEST_P(SoftmaxTest, BadAxisIsNamed) {
  EXPECT_TRUE(ExpectError(Case(RandomTensor({2, 3}, 1), 2), absl::StatusCode::kInvalidArgument,
                          {"attribute axis is 2", "[-2, 2)", "rank 2"}));
}

INSTANTIATE_TEST_SUITE_P(Ops, SoftmaxTest, ::testing::Values("Softmax", "LogSoftmax"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SoftmaxGrad, AgreesWithTheReference) {
  for (const char* op : {"SoftmaxGrad", "LogSoftmaxGrad"}) {
    for (const int64_t axis : {0, 1, 2}) {
      const OpCase op_case{.domain = "ai.weft",
                           .op = op,
                           .attributes = {{"axis", axis}},
                           .inputs = {RandomTensor({5, 17, 9}, 1), RandomTensor({5, 17, 9}, 2)}};
      EXPECT_TRUE(CheckKernelAgainstReference(op_case));
      EXPECT_TRUE(CheckSharding(op_case, {.min_splits = 4}));
    }
  }
}

TEST(SoftmaxGrad, RowsOfAnyLengthAgreeWithTheReference) {
  for (int64_t size = 1; size <= 40; ++size) {
    const OpCase op_case{.domain = "ai.weft",
                         .op = "SoftmaxGrad",
                         .inputs = {RandomTensor({5, size}, 1), RandomTensor({5, size}, 2)}};
    EXPECT_TRUE(CheckKernelAgainstReference(op_case));
  }
}

}  // namespace
}  // namespace weft::testing
