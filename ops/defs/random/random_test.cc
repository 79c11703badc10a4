// Random numbers, and Dropout.
#include <cmath>

#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

struct Moments {
  double mean = 0;
  double deviation = 0;
};
Moments MomentsOf(const Tensor& tensor) {
  Moments moments;
  const std::vector<double> values = *ToDoubles(tensor);
  for (const double value : values) moments.mean += value / static_cast<double>(values.size());
  for (const double value : values) {
    moments.deviation += (value - moments.mean) * (value - moments.mean);
  }
  moments.deviation = std::sqrt(moments.deviation / static_cast<double>(values.size()));
  return moments;
}

Attributes OfShape(std::vector<int64_t> shape, DType dtype) {
  return {{"shape", std::move(shape)}, {"dtype", static_cast<int64_t>(dtype)}};
}

TEST(RandomUniform, FillsItsRange) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    Attributes attributes = OfShape({100, 300}, dtype);
    attributes.Set("low", 2.0f);
    attributes.Set("high", 4.0f);
    const auto y = RunOp({.op = "RandomUniform", .attributes = attributes, .inputs = {}});
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ(y->at(0).dtype(), dtype);
    EXPECT_NEAR(MomentsOf(y->at(0)).mean, 3, 0.02);
    EXPECT_NEAR(MomentsOf(y->at(0)).deviation, 2 / std::sqrt(12.0), 0.02);
  }
}

TEST(RandomNormalLike, HasMeanAndDeviation) {
  const auto y = RunOp({.op = "RandomNormalLike",
                        .attributes = {{"mean", 1.0f}, {"scale", 3.0f}},
                        .inputs = {RandomTensor({200, 200}, 1, 0, 9, DType::kInt32)}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(y->at(0).dtype(), DType::kFloat32);
  EXPECT_NEAR(MomentsOf(y->at(0)).mean, 1, 0.06);
  EXPECT_NEAR(MomentsOf(y->at(0)).deviation, 3, 0.06);
}

TEST(RandomUniform, IsAFunctionOfItsSeed) {
  const auto with = [](float seed) {
    Attributes attributes = OfShape({50}, DType::kFloat32);
    attributes.Set("seed", seed);
    return RunOp({.op = "RandomUniform", .attributes = attributes, .inputs = {}})->at(0);
  };
  EXPECT_TRUE(BitwiseEqual(with(1), with(1)));
  EXPECT_FALSE(BitwiseEqual(with(1), with(2)));
}

TEST(Bernoulli, DrawsOnesAsOftenAsAsked) {
  const Tensor p = Tensor::Of<float>({20000}, std::vector<float>(20000, 0.3f));
  const auto y = RunOp({.op = "Bernoulli",
                        .attributes = {{"dtype", static_cast<int64_t>(DType::kInt32)}},
                        .inputs = {p}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_NEAR(MomentsOf(y->at(0)).mean, 0.3, 0.02);
}

TEST(Multinomial, DrawsInProportion) {
  const float log3 = std::log(3.0f);
  const auto y = RunOp({.op = "Multinomial",
                        .attributes = {{"sample_size", int64_t{20000}}},
                        .inputs = {Tensor::Of<float>({1, 2}, {0, log3})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(y->at(0).shape(), (Shape{1, 20000}));
  EXPECT_NEAR(MomentsOf(y->at(0)).mean, 0.75, 0.02);
}

OpCase DropoutCase(Tensor x, float ratio, bool training) {
  return {.op = "Dropout",
          .inputs = {std::move(x), Tensor::Scalar<float>(ratio), Tensor::Scalar<bool>(training)},
          .outputs = {true, true}};
}

TEST(Dropout, PassesTheDataOnOutsideOfTraining) {
  const Tensor x = RandomTensor({7, 5}, 1);
  EXPECT_TRUE(BitwiseEqual(RunOp({.op = "Dropout", .inputs = {x}})->at(0), x));
  const auto y = RunOp(DropoutCase(x, 0.5f, false));
  EXPECT_TRUE(BitwiseEqual(y->at(0), x));
  for (const bool kept : y->at(1).data<bool>()) EXPECT_TRUE(kept);
}

TEST(Dropout, DropsAndScales) {
  const Tensor x = Tensor::Of<float>({200, 200}, std::vector<float>(40000, 3));
  const auto y = RunOp(DropoutCase(x, 0.25f, true));
  ASSERT_TRUE(y.ok()) << y.status();
  int64_t kept = 0;
  for (int64_t i = 0; i < 40000; ++i) {
    const bool is_kept = y->at(1).data<bool>()[i];
    kept += is_kept;
    ASSERT_EQ(y->at(0).data<float>()[i], is_kept ? 4.0f : 0.0f);
  }
  EXPECT_NEAR(static_cast<double>(kept) / 40000, 0.75, 0.01);
}

TEST(Dropout, AShardDrawsWhatTheWholeDoes) {
  const Tensor x = RandomTensor({6, 10}, 1, 1, 2);
  const OpCase whole = DropoutCase(x, 0.5f, true);
  const Tensor expected = RunOp(whole)->at(0);
  const SingleNodeGraph single = MakeSingleNodeGraph(whole);
  std::vector<Tensor> inputs = whole.inputs;
  inputs[0] = x.Rows(2, 5);
  NodeRunOptions options;
  const OperandSlice slice{{6, 10}, {2, 0}};
  options.input_slices = {slice};
  const auto shard =
      ConcreteNode::Create(single.graph->node(single.node), inputs, std::move(options));
  ASSERT_TRUE(shard.ok()) << shard.status();
  const auto outputs = shard->Run();
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(BitwiseEqual(outputs->at(0), *expected.Rows(2, 5).Clone()));
}

TEST(Dropout, ARatioOutsideIsRefused) {
  EXPECT_TRUE(ExpectError(DropoutCase(RandomTensor({3}, 1), 1.5f, true),
                          absl::StatusCode::kInvalidArgument, {"1.5", "[0, 1)"}));
}

TEST(DropoutGrad, AgreesWithTheReference) {
  for (const bool training : {false, true}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        {.domain = "ai.weft",
         .op = "DropoutGrad",
         .inputs = {RandomTensor({7, 5}, 1),
                    training
                        ? RandomTensor({7, 5}, 2, 0, 1, DType::kBool)
                        : Cast(Tensor::Of<float>({7, 5}, std::vector<float>(35, 1)), DType::kBool),
                    Tensor::Scalar<float>(0.25f), Tensor::Scalar<bool>(training)}}));
  }
}

}  // namespace
}  // namespace weft::testing
