#include <cmath>

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
using testing::RunOp;

// One parameter of one element, updated step after step with the gradients given.
class Trajectory {
 public:
  Trajectory(std::string op, Attributes attributes, int slots)
      : op_(std::move(op)), attributes_(std::move(attributes)), slots_(slots, Scalar(0)) {}

  // The parameter after each step, from w = 1.
  std::vector<double> Run(double learning_rate, const std::vector<double>& gradients) {
    Tensor w = Scalar(1);
    std::vector<double> path;
    for (size_t t = 0; t < gradients.size(); ++t) {
      OpCase op_case{.domain = "ai.weft", .op = op_, .attributes = attributes_, .inputs = {}};
      op_case.inputs = {w, Scalar(gradients[t]), Scalar(learning_rate)};
      if (op_ == "AdamUpdate") {
        op_case.inputs.push_back(Tensor::Scalar<int64_t>(static_cast<int64_t>(t) + 1));
      }
      op_case.inputs.insert(op_case.inputs.end(), slots_.begin(), slots_.end());
      op_case.outputs.assign(1 + slots_.size(), true);
      const absl::StatusOr<std::vector<Tensor>> outputs = RunOp(op_case);
      EXPECT_TRUE(outputs.ok()) << outputs.status();
      w = (*outputs)[0];
      slots_.assign(outputs->begin() + 1, outputs->end());
      path.push_back(w.data<double>()[0]);
    }
    return path;
  }

 private:
  static Tensor Scalar(double value) { return Tensor::Scalar<double>(value); }

  std::string op_;
  Attributes attributes_;
  std::vector<Tensor> slots_;
};

void ExpectPath(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  // Attributes are float32: 0.9 is good to 3e-8.
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-7) << i;
}

// The usual numbers of Adam, and these.
Attributes Adam(const Attributes& more = {}) {
  Attributes attributes = {{"beta1", 0.9f}, {"beta2", 0.999f}, {"epsilon", 1e-8f}};
  for (const auto& [name, value] : more.items()) attributes.Set(name, value);
  return attributes;
}

TEST(SgdUpdateTest, Plain) {
  ExpectPath(Trajectory("SgdUpdate", {}, 0).Run(0.1, {2, -1}), {1 - 0.2, 1 - 0.2 + 0.1});
}

TEST(SgdUpdateTest, MomentumAddsTheVelocity) {
  // v = 2, then 0.9 * 2 - 1 = 0.8, then 0.9 * 0.8 + 0.5 = 1.22.
  ExpectPath(Trajectory("SgdUpdate", {{"momentum", 0.9f}}, 1).Run(0.1, {2, -1, 0.5}),
             {0.8, 0.72, 0.598});
}

TEST(SgdUpdateTest, NesterovLooksAhead) {
  // d = 2 + 0.9 * 2 = 3.8, then -1 + 0.9 * 0.8 = -0.28.
  ExpectPath(
      Trajectory("SgdUpdate", {{"momentum", 0.9f}, {"nesterov", int64_t{1}}}, 1).Run(0.1, {2, -1}),
      {0.62, 0.648});
}

TEST(SgdUpdateTest, WeightDecayAndDampening) {
  // g = 2 + 0.5 * 1 = 2.5; w = 0.75; then g = -1 + 0.375 = -0.625; w = 0.8125.
  ExpectPath(Trajectory("SgdUpdate", {{"weight_decay", 0.5f}}, 0).Run(0.1, {2, -1}),
             {0.75, 0.8125});
  // v = 0.5 * 2 = 1, then 0.5 * 1 + 0.5 * 4 = 2.5.
  ExpectPath(Trajectory("SgdUpdate", {{"momentum", 0.5f}, {"dampening", 0.5f}}, 1).Run(0.1, {2, 4}),
             {0.9, 0.65});
}

// Eight bytes were read of a scale of four.
TEST(SgdUpdateTest, ScalarsMayHaveAnotherTypeThanTheParameter) {
  const OpCase op_case{
      .domain = "ai.weft",
      .op = "SgdUpdate",
      .inputs = {Tensor::Scalar<double>(1), Tensor::Scalar<double>(2), Tensor::Scalar<float>(0.5f),
                 Tensor(), Tensor::Scalar<float>(0.25f)}};
  const auto outputs = RunOp(op_case);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ((*outputs)[0].data<double>()[0], 1 - 0.5 * 0.25 * 2);
}

TEST(AdamUpdateTest, FirstStepsByHand) {
  // Step 1: mhat = g, vhat = g^2: w moves by the learning rate. Step 2 with g = -1:
  // m = 0.9 * 0.2 - 0.1 = 0.08, mhat = 0.08 / 0.19; v = 0.999 * 0.004 + 0.001, vhat = v / 0.001999.
  const double mean = 0.08 / 0.19;
  const double square = (0.999 * 0.004 + 0.001) / 0.001999;
  ExpectPath(Trajectory("AdamUpdate", Adam(), 2).Run(0.1, {2, -1}),
             {0.9, 0.9 - 0.1 * mean / std::sqrt(square)});
}

TEST(AdamUpdateTest, WeightDecayIsCoupledOrNot) {
  // Coupled: g = 2 + 0.5: the first step still has the length of the learning rate.
  ExpectPath(Trajectory("AdamUpdate", Adam({{"weight_decay", 0.5f}}), 2).Run(0.1, {2}), {0.9});
  // Decoupled: w shrinks by learning rate * decay before.
  ExpectPath(Trajectory("AdamUpdate", Adam({{"weight_decay", 0.5f}, {"decoupled", int64_t{1}}}), 2)
                 .Run(0.1, {2}),
             {0.95 - 0.1});
}

TEST(AdamUpdateTest, EpsilonIsAddedToTheRoot) {
  ExpectPath(Trajectory("AdamUpdate", Adam({{"epsilon", 2.0f}}), 2).Run(0.1, {2}),
             {1 - 0.1 * 2 / 4});
}

OpCase SgdCase(Shape shape, Attributes attributes, bool velocity) {
  OpCase op_case{
      .domain = "ai.weft",
      .op = "SgdUpdate",
      .attributes = attributes,
      .inputs = {RandomTensor(shape, 1), RandomTensor(shape, 2), Tensor::Scalar<float>(0.1f)}};
  if (velocity) {
    op_case.inputs.push_back(RandomTensor(shape, 3));
    op_case.outputs = {true, true};
  }
  return op_case;
}

OpCase AdamCase(Shape shape, Attributes attributes) {
  return {.domain = "ai.weft",
          .op = "AdamUpdate",
          .attributes = Adam(attributes),
          .inputs = {RandomTensor(shape, 1), RandomTensor(shape, 2), Tensor::Scalar<float>(0.1f),
                     Tensor::Scalar<int64_t>(3), RandomTensor(shape, 3),
                     RandomTensor(shape, 4, 0.1, 1)},
          .outputs = {true, true, true}};
}

TEST(SgdUpdateTest, AgreesWithTheReference) {
  const Attributes all{
      {"momentum", 0.9f}, {"nesterov", int64_t{1}}, {"weight_decay", 0.01f}, {"dampening", 0.2f}};
  for (const Shape& shape : AwkwardShapes()) {
    EXPECT_TRUE(CheckKernelAgainstReference(SgdCase(shape, {}, false)));
    EXPECT_TRUE(CheckKernelAgainstReference(SgdCase(shape, all, true)));
  }
  // Enough for several threads.
  EXPECT_TRUE(CheckKernelAgainstReference(SgdCase({300, 1001}, all, true)));
}

TEST(AdamUpdateTest, AgreesWithTheReference) {
  for (const Shape& shape : AwkwardShapes()) {
    EXPECT_TRUE(CheckKernelAgainstReference(AdamCase(shape, {})));
    EXPECT_TRUE(CheckKernelAgainstReference(AdamCase(shape, {{"weight_decay", 0.1f}})));
  }
  EXPECT_TRUE(CheckKernelAgainstReference(
      AdamCase({100, 1001}, {{"weight_decay", 0.1f}, {"decoupled", int64_t{1}}})));
}

TEST(SgdUpdateTest, RefusesOperandsThatDoNotFit) {
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_TRUE(ExpectError(SgdCase({3}, {{"momentum", 0.9f}}, false), code,
                          {"momentum needs the input velocity"}));
  OpCase op_case = SgdCase({3}, {}, false);
  op_case.inputs[1] = RandomTensor({4}, 1);
  EXPECT_TRUE(ExpectError(op_case, code, {"input g is float32[4]", "float32[3]"}));
}

TEST(AdamUpdateTest, RefusesStepZero) {
  OpCase op_case = AdamCase({3}, {});
  op_case.inputs[3] = Tensor::Scalar<int64_t>(0);
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument,
                          {"step is 0; the first update is step 1"}));
}

TEST(UpdateTest, Sharding) {
  EXPECT_TRUE(CheckSharding(SgdCase({4, 6}, {{"momentum", 0.9f}}, true), {.min_splits = 4}));
  EXPECT_TRUE(CheckSharding(SgdCase({4, 6}, {}, false), {.min_splits = 4}));
  EXPECT_TRUE(CheckSharding(AdamCase({4, 6}, {}), {.min_splits = 4}));
}

}  // namespace
}  // namespace weft
