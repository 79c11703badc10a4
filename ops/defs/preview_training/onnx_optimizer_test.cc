#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr char kDomain[] = "ai.onnx.preview.training";

// One scalar tensor: rate 0.1, count 3.
OpCase Step(const std::string& op, std::vector<double> tensors, Attributes attributes) {
  OpCase op_case{.domain = kDomain,
                 .op = op,
                 .attributes = std::move(attributes),
                 .inputs = {Tensor::Scalar<double>(0.1), Tensor::Scalar<int64_t>(3)},
                 .outputs = std::vector<bool>(tensors.size() - 1, true)};
  for (const double value : tensors) op_case.inputs.push_back(Tensor::Scalar<double>(value));
  return op_case;
}

void ExpectScalars(const OpCase& op_case, const std::vector<double>& expected) {
  const auto outputs = RunOp(op_case);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR((*outputs)[i].data<double>()[0], expected[i], 1e-7) << i;
  }
}

TEST(OnnxOptimizer, AdagradByHand) {
  // g = 0.5 * 2 + 3 = 4; h = 9 + 16 = 25; rate = 0.1 / (1 + 3 * 1/3)
  ExpectScalars(Step("Adagrad", {2, 3, 9},
                     {{"norm_coefficient", 0.5f}, {"decay_factor", 1.0f / 3}, {"epsilon", 0.0f}}),
                {2 - 0.05 * 4 / 5, 25});
}

TEST(OnnxOptimizer, AdamByHand) {
  const double v = 0.5 * 1 + 0.5 * 4;
  const double h = 0.75 * 4 + 0.25 * 16;
  const double rate = 0.1 * std::sqrt(1 - 0.75 * 0.75 * 0.75) / (1 - 0.125);
  ExpectScalars(Step("Adam", {2, 3, 1, 4},
                     {{"norm_coefficient", 0.5f},
                      {"norm_coefficient_post", 0.25f},
                      {"alpha", 0.5f},
                      {"beta", 0.75f},
                      {"epsilon", 0.0f}}),
                {0.75 * (2 - rate * v / std::sqrt(h)), v, h});
}

TEST(OnnxOptimizer, MomentumByHand) {
  const Attributes standard = {{"norm_coefficient", 0.5f},
                               {"alpha", 0.5f},
                               {"beta", 0.25f},
                               {"mode", std::string("standard")}};
  ExpectScalars(Step("Momentum", {2, 3, 1}, standard), {2 - 0.1 * 1.5, 1.5});
  Attributes nesterov = standard;
  nesterov.Set("mode", std::string("nesterov"));
  ExpectScalars(Step("Momentum", {2, 3, 1}, nesterov), {2 - 0.1 * (4 + 0.5 * 1.5), 1.5});
  OpCase first = Step("Momentum", {2, 3, 1}, standard);
  first.inputs[1] = Tensor::Scalar<int64_t>(0);
  ExpectScalars(first, {2 - 0.1 * 4.5, 4.5});
}

TEST(OnnxOptimizer, SeveralTensorsAreGroupedByKind) {
  OpCase op_case{.domain = kDomain,
                 .op = "Momentum",
                 .attributes = {{"norm_coefficient", 0.0f},
                                {"alpha", 1.0f},
                                {"beta", 1.0f},
                                {"mode", std::string("standard")}},
                 .inputs = {Tensor::Scalar<float>(1), Tensor::Scalar<int64_t>(1)},
                 .outputs = {true, true, true, true}};
  for (const Shape& shape : {Shape{1}, Shape{2}, Shape{1}, Shape{2}, Shape{1}, Shape{2}}) {
    op_case.inputs.push_back(RandomTensor(shape, op_case.inputs.size()));
  }
  const auto outputs = RunOp(op_case);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const auto at = [&](int input, int i) { return op_case.inputs[input].data<float>()[i]; };
  EXPECT_EQ((*outputs)[2].data<float>()[0], at(6, 0) + at(4, 0));
  EXPECT_EQ((*outputs)[3].data<float>()[1], at(7, 1) + at(5, 1));
  EXPECT_FLOAT_EQ((*outputs)[1].data<float>()[1], at(3, 1) - (at(7, 1) + at(5, 1)));
}

TEST(OnnxOptimizer, MisfitsAreNamed) {
  OpCase op_case = Step("Adam", {2, 3, 1, 4}, {});
  op_case.inputs.pop_back();
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument, {"5 inputs", "2 + 4 n"}));
  op_case = Step("Adam", {2, 3, 1, 4}, {});
  op_case.inputs[4] = RandomTensor({2}, 1, 0, 1, DType::kFloat64);
  EXPECT_TRUE(
      ExpectError(op_case, absl::StatusCode::kInvalidArgument, {"input 4 is [2]", "expected []"}));
}

}  // namespace
}  // namespace weft::testing
