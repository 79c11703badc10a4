#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using testing::AwkwardShapes;
using testing::CheckKernelAgainstReference;
using testing::CheckSharding;
using testing::ExpectError;
using testing::ExpectOutputs;
using testing::OpCase;
using testing::RandomTensor;
using testing::SameBitsOnTwoThreads;

Tensor Rate() { return Tensor::Scalar<float>(0.1f); }
Tensor Step(int64_t step) { return Tensor::Scalar<int64_t>(step); }
Tensor Positive(const Shape& shape, uint64_t seed) { return RandomTensor(shape, seed, 2, 3); }

OpCase Update(const std::string& op, Attributes attributes, std::vector<Tensor> inputs,
              size_t outputs) {
  return {.domain = "ai.weft",
          .op = op,
          .attributes = std::move(attributes),
          .inputs = std::move(inputs),
          .outputs = std::vector<bool>(outputs, true)};
}

// Every adaptive update in every form it has, on parameters of this shape.
std::vector<OpCase> Cases(const Shape& shape) {
  const Tensor w = RandomTensor(shape, 1);
  const Tensor g = RandomTensor(shape, 2);
  const Tensor m = RandomTensor(shape, 3);
  const Tensor s = Positive(shape, 4);
  const Attributes betas = {
      {"weight_decay", 0.1f}, {"beta1", 0.9f}, {"beta2", 0.99f}, {"epsilon", 1e-6f}};
  const Attributes rho = {{"weight_decay", 0.1f}, {"rho", 0.9f}, {"epsilon", 1e-6f}};
  const Attributes alpha = {{"weight_decay", 0.1f}, {"alpha", 0.99f}, {"epsilon", 1e-8f}};
  const Attributes with_momentum = {{"momentum", 0.5f}, {"alpha", 0.99f}, {"epsilon", 1e-8f}};
  std::vector<OpCase> cases = {
      Update("AdagradUpdate", {{"weight_decay", 0.1f}, {"epsilon", 1e-10f}},
             {w, g, Rate(), Step(3), s}, 2),
      Update("AdadeltaUpdate", rho, {w, g, Rate(), s, Positive(shape, 5)}, 3),
      Update("RmspropUpdate", alpha, {w, g, Rate(), s}, 2),
      Update("RmspropUpdate", alpha, {w, g, Rate(), s, m}, 3),
      Update("RmspropUpdate", with_momentum, {w, g, Rate(), s, m, RandomTensor(shape, 6)}, 4),
      Update("LionUpdate", betas, {w, g, Rate(), m}, 2),
      Update("LambDirection", betas, {w, g, Step(3), m, s}, 3),
      Update("EmaUpdate", {{"decay", 0.75f}}, {w, g}, 1),
      Update("AdamUpdate", betas, {w, g, Rate(), Step(3), m, s, Positive(shape, 7)}, 4),
      Update("SgdUpdate", {{"momentum", 0.5f}, {"dampening", 0.25f}},
             {w, g, Rate(), m, Tensor::Scalar<float>(0.5f), Step(1)}, 2)};
  OpCase velocity_alone = Update("RmspropUpdate", with_momentum, {w, g, Rate(), s, Tensor(), m}, 4);
  velocity_alone.outputs[2] = false;
  cases.push_back(velocity_alone);
  return cases;
}

TEST(AdaptiveUpdateTest, KernelsAgreeWithTheReference) {
  for (const Shape& shape : AwkwardShapes()) {
    for (const OpCase& op_case : Cases(shape)) {
      EXPECT_TRUE(CheckKernelAgainstReference(op_case)) << op_case.op << shape.ToString();
    }
  }
}

TEST(AdaptiveUpdateTest, TheBitsDoNotDependOnThreads) {
  for (const OpCase& op_case : Cases({100, 1001})) {
    EXPECT_TRUE(SameBitsOnTwoThreads(op_case)) << op_case.op;
  }
}

TEST(AdaptiveUpdateTest, Sharding) {
  for (const OpCase& op_case : Cases({4, 6})) {
    EXPECT_TRUE(CheckSharding(op_case, {.min_splits = 4})) << op_case.op;
  }
}

TEST(LionUpdateTest, StepsByTheSignAndStaysWhereItIsZero) {
  const Tensor zeros = Tensor::Of<double>({3}, {0, 0, 0});
  EXPECT_TRUE(ExpectOutputs(
      Update("LionUpdate", {{"beta1", 0.9f}, {"beta2", 0.99f}},
             {zeros, Tensor::Of<double>({3}, {5, -0.01, 0}), Tensor::Scalar<double>(0.5), zeros},
             2),
      {Tensor::Of<double>({3}, {-0.5, 0.5, 0}), Tensor()}));
}

TEST(LionUpdateTest, NanIsSeen) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor one = Tensor::Of<double>({1}, {1});
  EXPECT_TRUE(ExpectOutputs(
      Update("LionUpdate", {{"beta1", 0.9f}, {"beta2", 0.99f}},
             {one, Tensor::Of<double>({1}, {nan}), Tensor::Scalar<double>(1), one}, 2),
      {Tensor::Of<double>({1}, {nan}), Tensor::Of<double>({1}, {nan})}));
}

TEST(AdagradUpdateTest, TheRateDecaysWithTheStep) {
  // Step 3: 0.5 / (1 + 2 * 0.5) = 0.25 times 2 / sqrt(12 + 4).
  EXPECT_TRUE(
      ExpectOutputs(Update("AdagradUpdate", {{"rate_decay", 0.5f}, {"epsilon", 0.0f}},
                           {Tensor::Of<double>({1}, {1}), Tensor::Of<double>({1}, {2}),
                            Tensor::Scalar<double>(0.5), Step(3), Tensor::Of<double>({1}, {12})},
                           2),
                    {Tensor::Of<double>({1}, {0.875}), Tensor::Of<double>({1}, {16})}));
}

OpCase Ratio(double w_square, double u_square, Attributes attributes) {
  return Update("TrustRatio", std::move(attributes),
                {Tensor::Scalar<double>(w_square), Tensor::Scalar<double>(u_square)}, 1);
}

TEST(TrustRatioTest, IsThatOfTheNorms) {
  EXPECT_TRUE(ExpectOutputs(Ratio(9, 4, {}), {Tensor::Scalar<double>(1.5)}));
  EXPECT_TRUE(
      ExpectOutputs(Ratio(9, 4, {{"coefficient", 0.5f}, {"weight_decay", 1.0f}, {"epsilon", 1.0f}}),
                    {Tensor::Scalar<double>(0.25)}));
}

TEST(TrustRatioTest, IsOneWhereThereIsNoNorm) {
  EXPECT_TRUE(ExpectOutputs(Ratio(0, 4, {}), {Tensor::Scalar<double>(1)}));
  EXPECT_TRUE(ExpectOutputs(Ratio(9, 0, {}), {Tensor::Scalar<double>(1)}));
}

TEST(RateFactorTest, CountsStepsFromOne) {
  const auto at = [](int64_t step) {
    return Update("RateFactor", {{"kind", std::string("constant")}, {"warmup", int64_t{4}}},
                  {Step(step)}, 1);
  };
  EXPECT_TRUE(ExpectOutputs(at(1), {Tensor::Scalar<float>(0.25f)}));
  EXPECT_TRUE(ExpectOutputs(at(4), {Tensor::Scalar<float>(1)}));
  EXPECT_TRUE(ExpectOutputs(at(9), {Tensor::Scalar<float>(1)}));
}

TEST(AdaptiveUpdateTest, RefusesOperandsThatDoNotFit) {
  const auto code = absl::StatusCode::kInvalidArgument;
  OpCase rmsprop = Cases({3})[2];
  rmsprop.attributes.Set("momentum", 0.5f);
  EXPECT_TRUE(ExpectError(rmsprop, code, {"momentum needs the input velocity"}));
  OpCase lion = Cases({3})[5];
  lion.inputs[3] = RandomTensor({4}, 1);
  EXPECT_TRUE(ExpectError(lion, code, {"input m is float32[4]", "type of w, float32[3]"}));
  OpCase adagrad = Cases({3})[0];
  adagrad.inputs[3] = Step(0);
  EXPECT_TRUE(ExpectError(adagrad, code, {"step is 0; the first update is step 1"}));
}

}  // namespace
}  // namespace weft
