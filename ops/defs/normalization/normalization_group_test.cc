#include "graph/expansion.h"
#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const Tolerance kTolerance{.of_magnitude = 5e-6};

OpCase Normalization(const std::string& op, Shape x, Shape parameter, Attributes attributes = {}) {
  return {.op = op,
          .attributes = std::move(attributes),
          .inputs = {RandomTensor(std::move(x), 1, -2, 5), RandomTensor(parameter, 2),
                     RandomTensor(parameter, 3)}};
}

std::vector<OpCase> GroupCases() {
  return {Normalization("InstanceNormalization", {2, 3, 5, 7}, {3}),
          Normalization("InstanceNormalization", {2, 5, 11}, {5}, {{"epsilon", 0.1f}}),
          Normalization("InstanceNormalization", {0, 3, 4}, {3}),
          Normalization("GroupNormalization", {2, 6, 3, 5}, {6}, {{"num_groups", int64_t{2}}}),
          Normalization("GroupNormalization", {2, 6, 3}, {3}, {{"num_groups", int64_t{3}}}),
          Normalization("GroupNormalization", {3, 4}, {4}, {{"num_groups", int64_t{4}}})};
}

TEST(GroupNormalizationTest, AgreesWithReference) {
  for (const OpCase& normalization : GroupCases()) {
    EXPECT_TRUE(CheckKernelAgainstReference(normalization, kTolerance));
    EXPECT_TRUE(CheckKernelAgainstReference(InFloat64(normalization), {.of_magnitude = 1e-12}));
  }
}

TEST(GroupNormalizationTest, TakesHalves) {
  OpCase halves =
      Normalization("GroupNormalization", {2, 6, 3, 5}, {6}, {{"num_groups", int64_t{2}}});
  for (Tensor& input : halves.inputs) input = Cast(input, DType::kFloat16);
  EXPECT_TRUE(CheckKernelAgainstReference(halves, {.of_magnitude = 1e-3}));
}

TEST(GroupNormalizationTest, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(
      ExpectError(Normalization("GroupNormalization", {2, 6, 3}, {6}, {{"num_groups", int64_t{4}}}),
                  absl::StatusCode::kInvalidArgument, {"divided into 4 groups"}));
  EXPECT_TRUE(ExpectError(Normalization("InstanceNormalization", {2, 6, 3}, {5}),
                          absl::StatusCode::kInvalidArgument, {"[5]", "one value per channel"}));
}

OpCase Rms(Shape x, Shape scale, int64_t axis) {
  return {.op = "RMSNormalization",
          .attributes = {{"axis", axis}},
          .inputs = {RandomTensor(std::move(x), 1), RandomTensor(std::move(scale), 2)}};
}

TEST(RmsNormalizationTest, AgreesWithReference) {
  for (const OpCase& rms :
       {Rms({3, 17}, {17}, -1), Rms({2, 3, 5}, {3, 5}, 1), Rms({2, 3, 5}, {5}, 0),
        Rms({2, 3, 5}, {2, 1, 5}, -3), Rms({4, 1}, {1}, -1), Rms({0, 4}, {4}, 1)}) {
    EXPECT_TRUE(CheckKernelAgainstReference(rms, kTolerance)) << rms.ToString();
  }
}

OpCase RmsGrad(Shape x, int64_t axis, std::vector<bool> outputs) {
  const int first = axis < 0 ? static_cast<int>(axis) + x.rank() : static_cast<int>(axis);
  const Shape scale(x.dims().subspan(static_cast<size_t>(first)));
  return {.domain = std::string(kWeftDomain),
          .op = "RMSNormalizationGrad",
          .attributes = {{"axis", axis}, {"epsilon", 1e-3f}},
          .inputs = {RandomTensor(x, 1), RandomTensor(x, 2, -2, 2), RandomTensor(scale, 3)},
          .outputs = std::move(outputs)};
}

TEST(RmsNormalizationTest, GradientKernelAgreesWithReference) {
  for (const std::vector<bool>& outputs :
       {std::vector<bool>{true, true}, std::vector<bool>{true, false},
        std::vector<bool>{false, true}}) {
    for (const OpCase& grad : {RmsGrad({300, 17}, -1, outputs), RmsGrad({2, 3, 5}, 1, outputs),
                               RmsGrad({4, 1}, 0, outputs), RmsGrad({0, 4}, 1, outputs)}) {
      EXPECT_TRUE(CheckKernelAgainstReference(grad, kTolerance)) << grad.ToString();
      EXPECT_TRUE(SameBitsOnTwoThreads(grad)) << grad.ToString();
    }
  }
}

TEST(RmsNormalizationTest, GradientRefusesWhatDoesNotFit) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const OpCase grad = RmsGrad({2, 5}, -1, {true, true});
  OpCase axis = grad;
  axis.attributes.Set("axis", int64_t{2});
  EXPECT_TRUE(ExpectError(axis, invalid, {"attribute axis is 2", "[-2, 2)", "rank 2"}));
  OpCase wide = grad;
  wide.inputs[2] = Cast(wide.inputs[2], DType::kFloat64);
  EXPECT_TRUE(ExpectError(wide, invalid, {"input 2 is float64", "float32", "add a Cast"}));
  OpCase short_scale = grad;
  short_scale.inputs[2] = RandomTensor({4}, 3);
  EXPECT_TRUE(ExpectError(short_scale, invalid, {"Scale [4]", "X [2,5]", "5 elements of Scale"}));
  OpCase other_dy = grad;
  other_dy.inputs[0] = RandomTensor({5, 2}, 1);
  EXPECT_TRUE(ExpectError(other_dy, invalid, {"dY is [5,2]", "X [2,5] wants a dY like it"}));
}

TEST(RmsNormalizationTest, GradientsAgreeWithDifferences) {
  for (const OpCase& rms : {Rms({3, 17}, {17}, -1), Rms({2, 3, 5}, {3, 5}, 1),
                            Rms({2, 3, 5}, {5}, 1), Rms({2, 3, 5}, {1, 1, 5}, -1)}) {
    EXPECT_TRUE(CheckGradient(rms)) << rms.ToString();
  }
}

TEST(RmsNormalizationTest, ShardsAgreeWithTheWhole) {
  EXPECT_TRUE(CheckSharding(Rms({6, 4, 5}, {5}, -1)));
  EXPECT_TRUE(CheckSharding(RmsGrad({6, 4, 5}, -1, {true, true})));
}

TEST(RmsNormalizationTest, GivesTheTypeOfItsScale) {
  OpCase rms = Rms({3, 17}, {17}, -1);
  rms.inputs[0] = Cast(rms.inputs[0], DType::kFloat16);
  const auto y = RunOp(rms);
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].dtype(), DType::kFloat32);
}

TEST(LpNormalizationTest, AgreesWithReference) {
  for (const int64_t p : {1, 2}) {
    for (const int64_t axis : {0, 1, -1}) {
      EXPECT_TRUE(CheckKernelAgainstReference({.op = "LpNormalization",
                                               .attributes = {{"axis", axis}, {"p", p}},
                                               .inputs = {RandomTensor({3, 5, 300}, 1)}},
                                              kTolerance));
    }
  }
  EXPECT_TRUE(ExpectOutputs(
      {.op = "LpNormalization", .inputs = {Tensor::Of<float>({2}, std::vector<float>{0, 0})}},
      {Tensor::Of<float>({2}, std::vector<float>{0, 0})}));
}

TEST(LrnTest, AgreesWithReference) {
  for (const int64_t size : {1, 2, 3, 5, 20}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        {.op = "LRN",
         .attributes = {{"size", size}, {"alpha", 0.3f}, {"beta", 0.6f}, {"bias", 2.0f}},
         .inputs = {RandomTensor({2, 7, 17, 19}, 1)}},
        kTolerance));
  }
}

// In a branch, a node may not fit: it counts when it runs, but is taken apart before.
TEST(InstanceNormalization, IsNotTakenApartWhereItDoesNotFit) {
  const SingleNodeGraph node = MakeSingleNodeGraph(
      {.op = "InstanceNormalization",
       .inputs = {RandomTensor({2}, 1), RandomTensor({2}, 2), RandomTensor({2}, 3)}});
  const absl::Status status = ExpandNode(*node.graph, node.node);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("X has shape [2], expected"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace weft::testing
