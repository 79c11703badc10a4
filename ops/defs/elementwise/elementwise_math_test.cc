// Functions of one operand beyond the basic ones, and activations.
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/gradient_rule.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

struct FunctionCase {
  std::string op;
  double low;  // where the function is computed
  double high;
  double gradient_low;  // where it has a gradient, away from kinks; equal: none is checked
  double gradient_high;
  Attributes attributes = {};
  std::string name = "";
};

void PrintTo(const FunctionCase& function, std::ostream* out) { *out << function.op; }

class FunctionTest : public ::testing::TestWithParam<FunctionCase> {
 protected:
  OpCase Case(Tensor x) const {
    return {.op = GetParam().op, .attributes = GetParam().attributes, .inputs = {std::move(x)}};
  }
  Tensor Values(const Shape& shape, DType dtype = DType::kFloat32) const {
    return Cast(RandomTensor(shape, 1, GetParam().low, GetParam().high), dtype);
  }
};

TEST_P(FunctionTest, AwkwardShapes) {
  for (const Shape& shape : AwkwardShapes()) {
    EXPECT_TRUE(CheckKernelAgainstReference(Case(Values(shape)), {.of_magnitude = 1e-6}));
  }
}

TEST_P(FunctionTest, OtherFloatTypes) {
  EXPECT_TRUE(
      CheckKernelAgainstReference(Case(Values({5, 7}, DType::kFloat64)), {.of_magnitude = 1e-7}));
  EXPECT_TRUE(
      CheckKernelAgainstReference(Case(Values({5, 7}, DType::kFloat16)), {.of_magnitude = 2e-3}));
  EXPECT_TRUE(
      CheckKernelAgainstReference(Case(Values({5, 7}, DType::kBfloat16)), {.of_magnitude = 1e-2}));
}

TEST_P(FunctionTest, NanStaysNan) {
  for (const int64_t size : {1, 16, 21}) {
    const std::vector<float> x(size, kNan);
    const auto y = RunOp(Case(Floats(x)));
    ASSERT_TRUE(y.ok()) << y.status();
    for (const float value : y->at(0).data<float>()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(FunctionTest, TwoThreadsGiveTheBitsOfOne) {
  EXPECT_TRUE(SameBitsOnTwoThreads(Case(Values({521, 257}))));
}

TEST_P(FunctionTest, Gradients) {
  const FunctionCase& function = GetParam();
  if (function.gradient_low == function.gradient_high) return;
  EXPECT_TRUE(
      CheckGradient(Case(RandomTensor({3, 7}, 1, function.gradient_low, function.gradient_high)),
                    {.inputs = {}, .tolerance = 2e-6, .production = {.of_magnitude = 2e-5}}));
}

TEST_P(FunctionTest, Shardings) {
  EXPECT_TRUE(CheckSharding(Case(Values({5, 6})), {.min_splits = 4}));
}

std::string NameOf(const ::testing::TestParamInfo<FunctionCase>& info) {
  return info.param.op + info.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    Math, FunctionTest,
    ::testing::Values(FunctionCase{"Sin", -30, 30, -2, 2}, FunctionCase{"Cos", -30, 30, -2, 2},
                      FunctionCase{"Tan", -1.5, 1.5, -1, 1}, FunctionCase{"Asin", -1, 1, -0.8, 0.8},
                      FunctionCase{"Acos", -1, 1, -0.8, 0.8}, FunctionCase{"Atan", -9, 9, -2, 2},
                      FunctionCase{"Sinh", -8, 8, -2, 2}, FunctionCase{"Cosh", -8, 8, -2, 2},
                      FunctionCase{"Asinh", -9, 9, -2, 2}, FunctionCase{"Acosh", 1.1, 9, 1.5, 3},
                      FunctionCase{"Atanh", -0.9, 0.9, -0.7, 0.7},
                      FunctionCase{"Ceil", -9, 9, 0, 0}, FunctionCase{"Floor", -9, 9, 0, 0},
                      FunctionCase{"Round", -9, 9, 0, 0}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Activations, FunctionTest,
    ::testing::Values(
        FunctionCase{"LeakyRelu", -9, 9, 0.1, 2},
        FunctionCase{"LeakyRelu", -9, 9, -2, -0.1, {{"alpha", 0.2f}}, "Negative"},
        FunctionCase{"Elu", -9, 9, 0.1, 2},
        FunctionCase{"Elu", -9, 9, -2, -0.1, {{"alpha", 1.5f}}, "Negative"},
        FunctionCase{"Celu", -9, 9, -2, -0.1, {{"alpha", 2.0f}}},
        FunctionCase{"Selu", -9, 9, -2, -0.1}, FunctionCase{"Selu", -9, 9, 0.1, 2, {}, "Positive"},
        FunctionCase{"HardSigmoid", -9, 9, -2, 2},
        FunctionCase{"HardSigmoid", -9, 9, -2, 2, {{"alpha", 0.1f}, {"beta", 0.6f}}, "Scaled"},
        FunctionCase{"HardSwish", -9, 9, -2.5, 2.5}, FunctionCase{"Softplus", -30, 30, -3, 3},
        FunctionCase{"Softsign", -9, 9, 0.1, 3}, FunctionCase{"Mish", -20, 20, -3, 3},
        FunctionCase{"Swish", -20, 20, -3, 3},
        FunctionCase{"Swish", -20, 20, -3, 3, {{"alpha", 1.7f}}, "Scaled"},
        FunctionCase{"ThresholdedRelu", -9, 9, 1.1, 3}, FunctionCase{"Shrink", -2, 2, 0.6, 2},
        FunctionCase{"Shrink", -2, 2, -3, -1.6, {{"lambd", 1.5f}, {"bias", 1.5f}}, "Soft"},
        FunctionCase{"Gelu", -9, 9, -3, 3},
        FunctionCase{"Gelu", -9, 9, -3, 3, {{"approximate", std::string("tanh")}}, "Tanh"}),
    NameOf);

// ---- Kinks.

// Of all inputs of the case, when `dy` arrives at its output.
absl::StatusOr<std::vector<Tensor>> GradientsOf(const OpCase& op_case, const Tensor& dy) {
  std::vector<int> inputs(op_case.inputs.size());
  std::iota(inputs.begin(), inputs.end(), 0);
  absl::StatusOr<GradientGraph> built = BuildGradientGraph(op_case, inputs);
  if (!built.ok()) return built.status();
  std::map<ValueId, Tensor> feeds = {{built->output_gradients[0], dy}};
  for (const int i : inputs) feeds.emplace(built->inputs[i], op_case.inputs[i]);
  return EvaluateGraph(*built->graph, feeds, built->input_gradients);
}

struct KinkCase {
  std::string op;
  std::vector<float> kinks;
  std::vector<float> slopes;  // by the autograd of PyTorch 2.15
  Attributes attributes = {};
};

void PrintTo(const KinkCase& kink, std::ostream* out) { *out << kink.op; }

class KinkTest : public ::testing::TestWithParam<KinkCase> {};

TEST_P(KinkTest, TheSlopeIsPyTorchs) {
  const OpCase op_case{.op = GetParam().op,
                       .attributes = GetParam().attributes,
                       .inputs = {Floats(GetParam().kinks)}};
  const Tensor dy = Floats(std::vector<float>(GetParam().kinks.size(), 1));
  const auto gradients = GradientsOf(op_case, dy);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_TRUE(TensorsNear((*gradients)[0], Floats(GetParam().slopes), {.of_magnitude = 1e-6}));
}

INSTANTIATE_TEST_SUITE_P(
    Activations, KinkTest,
    ::testing::Values(
        KinkCase{"Relu", {0}, {0}}, KinkCase{"LeakyRelu", {0}, {0.2f}, {{"alpha", 0.2f}}},
        KinkCase{"Elu", {0}, {1.5f}, {{"alpha", 1.5f}}}, KinkCase{"Selu", {0}, {1.7580993f}},
        KinkCase{"HardSwish", {-3, 3}, {0, 1}},
        KinkCase{"HardSigmoid", {-3, 3}, {0, 0}, {{"alpha", 1.0f / 6}, {"beta", 0.5f}}},
        KinkCase{"ThresholdedRelu", {1}, {0}}, KinkCase{"Shrink", {-0.5, 0.5}, {0, 0}}),
    [](const ::testing::TestParamInfo<KinkCase>& info) { return info.param.op; });

TEST(PRelu, TheSlopeAtZeroIsTheOperand) {
  const OpCase op_case{.op = "PRelu", .inputs = {Floats({-1, 0, 1}), Floats({0.25f})}};
  const auto gradients = GradientsOf(op_case, Floats({1, 1, 1}));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_TRUE(BitwiseEqual((*gradients)[0], Floats({0.25f, 0.25f, 1})));
}

TEST(Round, HalvesGoToTheEvenNeighbour) {
  EXPECT_TRUE(ExpectOutputs({.op = "Round", .inputs = {Floats({0.5, 1.5, -2.5, 2.4, kInfinity})}},
                            {Floats({0, 2, -2, 2, kInfinity})}));
}

TEST(Softplus, NeitherOverflowsNorVanishes) {
  EXPECT_TRUE(ExpectOutputs({.op = "Softplus", .inputs = {Floats({200, -80, kInfinity})}},
                            {Floats({200, std::exp(-80.0f), kInfinity})},
                            {.of_magnitude = 0, .of_element = 1e-6}));
}

TEST(HardSwish, IsTheIdentityFarAbove) {
  EXPECT_TRUE(ExpectOutputs({.op = "HardSwish", .inputs = {Floats({3, 100, -3, -100})}},
                            {Floats({3, 100, 0, 0})}, {.absolute = 1e-6}));
}

OpCase SwiGlu(Tensor a, Tensor b, float alpha = 1) {
  return {.op = "SwiGLU", .attributes = {{"alpha", alpha}}, .inputs = {std::move(a), std::move(b)}};
}

TEST(SwiGlu, AwkwardShapes) {
  for (const Shape& shape : AwkwardShapes()) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        SwiGlu(RandomTensor(shape, 1, -20, 20), RandomTensor(shape, 2, -2, 2), 1.7f),
        {.of_magnitude = 1e-6}));
  }
}

TEST(SwiGlu, OtherFloatTypes) {
  const Tensor a = RandomTensor({5, 7}, 1, -9, 9);
  const Tensor b = RandomTensor({5, 7}, 2, -2, 2);
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kFloat64, 1e-7}, {DType::kFloat16, 2e-3}, {DType::kBfloat16, 1e-2}}) {
    EXPECT_TRUE(CheckKernelAgainstReference(SwiGlu(Cast(a, dtype), Cast(b, dtype), 0.5f),
                                            {.of_magnitude = tolerance}));
  }
}

// What the standard defines it as.
TEST(SwiGlu, IsTheSwishOfTheGateTimesTheValue) {
  const Tensor a = RandomTensor({3, 37}, 1, -5, 5);
  const Tensor b = RandomTensor({3, 37}, 2, -2, 2);
  const auto swish = RunOp({.op = "Swish", .attributes = {{"alpha", 1.3f}}, .inputs = {a}});
  ASSERT_TRUE(swish.ok()) << swish.status();
  const auto product = RunOp({.op = "Mul", .inputs = {(*swish)[0], b}});
  ASSERT_TRUE(product.ok()) << product.status();
  EXPECT_TRUE(ExpectOutputs(SwiGlu(a, b, 1.3f), *product, {.of_magnitude = 1e-6}));
}

TEST(SwiGlu, NanStaysNan) {
  for (const int64_t size : {1, 16, 21}) {
    const Tensor nan = Floats(std::vector<float>(static_cast<size_t>(size), kNan));
    const Tensor one = Floats(std::vector<float>(static_cast<size_t>(size), 1));
    for (const OpCase& op_case : {SwiGlu(nan, one), SwiGlu(one, nan)}) {
      const auto y = RunOp(op_case);
      ASSERT_TRUE(y.ok()) << y.status();
      for (const float value : y->at(0).data<float>()) EXPECT_TRUE(std::isnan(value));
    }
  }
}

TEST(SwiGlu, TwoThreadsGiveTheBitsOfOne) {
  EXPECT_TRUE(SameBitsOnTwoThreads(
      SwiGlu(RandomTensor({521, 257}, 1, -5, 5), RandomTensor({521, 257}, 2))));
}

TEST(SwiGlu, Gradients) {
  for (const float alpha : {1.0f, 1.7f}) {
    EXPECT_TRUE(
        CheckGradient(SwiGlu(RandomTensor({3, 7}, 1, -3, 3), RandomTensor({3, 7}, 2, -2, 2), alpha),
                      {.inputs = {}, .tolerance = 2e-6, .production = {.of_magnitude = 2e-5}}));
  }
}

TEST(SwiGlu, Shardings) {
  EXPECT_TRUE(CheckSharding(SwiGlu(RandomTensor({5, 6}, 1, -3, 3), RandomTensor({5, 6}, 2)),
                            {.min_splits = 4}));
}

TEST(SwiGlu, RefusesAnotherShape) {
  EXPECT_TRUE(ExpectError(SwiGlu(RandomTensor({3, 4}, 1), RandomTensor({1, 4}, 2)),
                          absl::StatusCode::kInvalidArgument,
                          {"[3,4]", "[1,4]", "expected one shape for both"}));
}

TEST(Gelu, UnknownApproximationIsNamed) {
  EXPECT_TRUE(ExpectError(
      {.op = "Gelu", .attributes = {{"approximate", std::string("fast")}}, .inputs = {Floats({1})}},
      absl::StatusCode::kInvalidArgument, {"approximate is 'fast'", "'tanh'"}));
}

TEST(Shrink, WholeNumbers) {
  EXPECT_TRUE(ExpectOutputs({.op = "Shrink",
                             .attributes = {{"lambd", 1.5f}, {"bias", 1.0f}},
                             .inputs = {Cast(Floats({-3, -1, 0, 1, 3}), DType::kInt8)}},
                            {Cast(Floats({-2, 0, 0, 0, 2}), DType::kInt8)}));
}

// ---- PRelu.

TEST(PRelu, AgreesWithTheReference) {
  for (const auto& [x, slope] : std::vector<std::pair<Shape, Shape>>{
           {{3, 4}, {3, 4}}, {{2, 3, 5}, {3, 1}}, {{7}, {1}}, {{0, 3}, {3}}, {{}, {}}}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        {.op = "PRelu", .inputs = {RandomTensor(x, 1), RandomTensor(slope, 2)}}));
  }
  for (const DType dtype : {DType::kInt32, DType::kInt64, DType::kUint32, DType::kFloat64}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        {.op = "PRelu",
         .inputs = {RandomTensor({4, 5}, 1, 0, 9, dtype), RandomTensor({5}, 2, 0, 9, dtype)}}));
  }
}

TEST(PRelu, Gradients) {
  EXPECT_TRUE(CheckGradient(
      {.op = "PRelu", .inputs = {RandomAwayFromZero({2, 3, 4}, 1), RandomTensor({3, 1}, 2)}}));
}

TEST(PRelu, ASlopeLargerThanXIsRefused) {
  EXPECT_TRUE(
      ExpectError({.op = "PRelu", .inputs = {RandomTensor({3}, 1), RandomTensor({2, 3}, 2)}},
                  absl::StatusCode::kInvalidArgument, {"the slope", "[2,3]", "[3]"}));
}

// ---- Clip.

OpCase ClipCase(Tensor x, Tensor low, Tensor high) {
  return {.op = "Clip", .inputs = {std::move(x), std::move(low), std::move(high)}};
}

TEST(Clip, AgreesWithTheReference) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt8, DType::kInt64}) {
    const Tensor low = Cast(Tensor::Scalar<float>(-2), dtype);
    const Tensor high = Cast(Tensor::Scalar<float>(3), dtype);
    for (const Shape& shape : AwkwardShapes()) {
      const Tensor x = RandomTensor(shape, 1, -5, 5, dtype);
      EXPECT_TRUE(CheckKernelAgainstReference(ClipCase(x, low, high), {.of_magnitude = 0}));
      EXPECT_TRUE(CheckKernelAgainstReference(ClipCase(x, low, {}), {.of_magnitude = 0}));
      EXPECT_TRUE(CheckKernelAgainstReference(ClipCase(x, {}, high), {.of_magnitude = 0}));
      EXPECT_TRUE(CheckKernelAgainstReference({.op = "Clip", .inputs = {x}}, {.of_magnitude = 0}));
    }
  }
}

TEST(Clip, TheUpperBoundWinsWhereTheyCross) {
  EXPECT_TRUE(ExpectOutputs(
      ClipCase(Floats({-2, 0, 6}), Tensor::Scalar<float>(2), Tensor::Scalar<float>(1)),
      {Floats({1, 1, 1})}));
}

TEST(Clip, Gradients) {
  EXPECT_TRUE(CheckGradient(ClipCase(RandomDistinct({30}, 1), Tensor::Scalar<float>(-0.33f),
                                     Tensor::Scalar<float>(1.21f)),
                            {.inputs = {0, 1, 2}, .step = 1e-4}));
}

TEST(Clip, AnElementAtABoundGivesItsGradientToTheBound) {
  const Tensor x = Floats({-1, 0, 2, 6, 7});
  const OpCase op_case = ClipCase(x, Tensor::Scalar<float>(0), Tensor::Scalar<float>(6));
  const auto gradients = GradientsOf(op_case, Floats({1, 10, 100, 1000, 10000}));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_TRUE(BitwiseEqual((*gradients)[0], Floats({0, 0, 100, 0, 0})));
  EXPECT_TRUE(BitwiseEqual((*gradients)[1], Tensor::Scalar<float>(11)));
  EXPECT_TRUE(BitwiseEqual((*gradients)[2], Tensor::Scalar<float>(11000)));
}

TEST(Clip, Shardings) {
  EXPECT_TRUE(CheckSharding(
      ClipCase(RandomTensor({5, 6}, 1), Tensor::Scalar<float>(-0.5), Tensor::Scalar<float>(0.5)),
      {.min_splits = 4}));
}

TEST(Clip, ABoundOfSeveralElementsIsRefused) {
  EXPECT_TRUE(ExpectError(ClipCase(Floats({1, 2}), Floats({1, 2}), {}),
                          absl::StatusCode::kInvalidArgument, {"input 1", "[2]", "one element"}));
}

}  // namespace
}  // namespace weft::testing
