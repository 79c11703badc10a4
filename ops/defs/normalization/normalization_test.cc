#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const std::string kWeft(kWeftDomain);

OpCase LayerCase(Shape x, int64_t axis, bool bias, std::vector<bool> outputs = {true},
                 DType dtype = DType::kFloat32) {
  const int first = static_cast<int>(axis < 0 ? axis + x.rank() : axis);
  const Shape normalized(x.dims().subspan(first));
  OpCase layer{
      .op = "LayerNormalization",
      .attributes = {{"axis", axis}, {"epsilon", 1e-3f}},
      .inputs = {Cast(RandomTensor(x, 1, -3, 5), dtype), Cast(RandomTensor(normalized, 2), dtype)},
      .outputs = std::move(outputs)};
  if (bias) layer.inputs.push_back(Cast(RandomTensor(normalized, 3), dtype));
  return layer;
}

OpCase LayerGradientCase(Shape x, int64_t axis, std::vector<bool> outputs) {
  const int first = static_cast<int>(axis < 0 ? axis + x.rank() : axis);
  Shape statistics = x;
  for (int i = first; i < x.rank(); ++i) statistics.set_dim(i, 1);
  return {.domain = kWeft,
          .op = "LayerNormalizationGrad",
          .attributes = {{"axis", axis}},
          .inputs = {RandomTensor(x, 1), RandomTensor(x, 2),
                     RandomTensor(Shape(x.dims().subspan(first)), 3), RandomTensor(statistics, 4),
                     RandomTensor(statistics, 5, 0.5, 2)},
          .outputs = std::move(outputs)};
}

TEST(LayerNormalizationTest, NormalizesByHand) {
  const OpCase layer{.op = "LayerNormalization",
                     .attributes = {{"epsilon", 0.0f}},
                     .inputs = {Tensor::Of<float>({1, 2}, {3, 7}), Tensor::Of<float>({2}, {1, 10}),
                                Tensor::Of<float>({2}, {0.5, 0})},
                     .outputs = {true, true, true}};
  EXPECT_TRUE(
      ExpectOutputs(layer, {Tensor::Of<float>({1, 2}, {-0.5, 10}), Tensor::Of<float>({1, 1}, {5}),
                            Tensor::Of<float>({1, 1}, {0.5})}));
}

TEST(LayerNormalizationTest, AgreesWithReference) {
  for (const int64_t axis : {0, 1, 2, -1, -2}) {
    for (const bool bias : {false, true}) {
      EXPECT_TRUE(
          CheckKernelAgainstReference(LayerCase({3, 5, 37}, axis, bias, {true, true, true})));
    }
  }
  EXPECT_TRUE(CheckKernelAgainstReference(LayerCase({64, 256}, -1, true)));
  EXPECT_TRUE(CheckKernelAgainstReference(LayerCase({0, 8}, -1, true, {true, true, true})));
  EXPECT_TRUE(CheckKernelAgainstReference(
      LayerCase({3, 20}, -1, true, {true, true, true}, DType::kFloat16), {.of_magnitude = 1e-3}));
  EXPECT_TRUE(CheckKernelAgainstReference(InFloat64(LayerCase({3, 20}, -1, true)),
                                          {.of_magnitude = 1e-13}));
}

TEST(LayerNormalizationTest, KeepsPrecisionFarFromZero) {
  OpCase layer = LayerCase({4, 256}, -1, false);
  layer.inputs[0] = RandomTensor({4, 256}, 1, 1000, 1001);
  EXPECT_TRUE(CheckKernelAgainstReference(layer, {.of_magnitude = 1e-3}));
}

TEST(LayerNormalizationTest, SaysWhatDoesNotFit) {
  OpCase layer = LayerCase({3, 5}, -1, false);
  layer.inputs[1] = RandomTensor({4}, 2);
  EXPECT_TRUE(ExpectError(layer, absl::StatusCode::kInvalidArgument,
                          {"Scale", "[4]", "normalized axes 1 to 1", "[3,5]"}));
  OpCase axis = LayerCase({3, 5}, -1, false);
  axis.attributes.Set("axis", int64_t{2});
  EXPECT_TRUE(ExpectError(axis, absl::StatusCode::kInvalidArgument, {"axis", "2"}));
  OpCase stash = LayerCase({3, 5}, -1, false, {true, true});
  stash.attributes.Set("stash_type", int64_t{17});
  EXPECT_TRUE(ExpectError(stash, absl::StatusCode::kUnimplemented, {"Mean and InvStdDev"}));
}

TEST(LayerNormalizationTest, StatisticsHaveTheTypeOfTheStash) {
  OpCase stash = LayerCase({3, 5}, -1, false, {true, true});
  stash.attributes.Set("stash_type", int64_t{16});
  const auto outputs = RunOp(stash);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ((*outputs)[1].dtype(), DType::kBfloat16);
}

TEST(LayerNormalizationTest, GradientsAgreeWithDifferences) {
  for (const int64_t axis : {0, 1, 2}) {
    EXPECT_TRUE(CheckGradient(LayerCase({2, 3, 5}, axis, true)));
  }
  EXPECT_TRUE(CheckGradient(LayerCase({2, 3, 5}, -1, false)));
}

TEST(LayerNormalizationTest, GradientKernelAgreesWithReference) {
  EXPECT_TRUE(CheckKernelAgainstReference(LayerGradientCase({100, 5, 37}, -1, {true, true, true})));
  EXPECT_TRUE(CheckKernelAgainstReference(LayerGradientCase({3, 37}, 1, {false, true, false})));
  EXPECT_TRUE(CheckKernelAgainstReference(LayerGradientCase({3, 37}, 1, {true, false, true})));
  EXPECT_TRUE(CheckKernelAgainstReference(LayerGradientCase({0, 37}, 1, {true, true, true})));
}

TEST(LayerNormalizationTest, RowsAreSummedOverShardsForParametersOnly) {
  EXPECT_TRUE(CheckSharding(LayerCase({4, 3, 5}, -1, true), {.min_splits = 4}));
  EXPECT_TRUE(CheckSharding(LayerCase({4, 3, 5}, -1, true, {true, true, true}), {.min_splits = 4}));
  EXPECT_TRUE(
      CheckSharding(LayerGradientCase({4, 3, 5}, -1, {true, true, true}), {.min_splits = 4}));
  EXPECT_TRUE(
      CheckSharding(LayerGradientCase({4, 3, 5}, -1, {true, false, false}), {.min_splits = 4}));
}

OpCase BatchCase(Shape x, bool training, std::vector<bool> outputs = {true}) {
  const Shape channels{x.dim(1)};
  return {
      .op = "BatchNormalization",
      .attributes = {{"epsilon", 1e-3f}, {"momentum", 0.75f}, {"training_mode", int64_t{training}}},
      .inputs = {RandomTensor(x, 1, -3, 5), RandomTensor(channels, 2), RandomTensor(channels, 3),
                 RandomTensor(channels, 4), RandomTensor(channels, 5, 0.5, 2)},
      .outputs = std::move(outputs)};
}

TEST(BatchNormalizationTest, NormalizesByHand) {
  const Tensor x = Tensor::Of<float>({2, 1}, {3, 7});
  const Tensor one = Tensor::Of<float>({1}, {1});
  const Tensor ten = Tensor::Of<float>({1}, {10});
  OpCase batch{.op = "BatchNormalization",
               .attributes = {{"epsilon", 0.0f}, {"momentum", 0.5f}},
               .inputs = {x, ten, one, one, Tensor::Of<float>({1}, {4})}};
  EXPECT_TRUE(ExpectOutputs(batch, {Tensor::Of<float>({2, 1}, {11, 31})}));
  batch.attributes.Set("training_mode", int64_t{1});
  batch.outputs = {true, true, true};
  EXPECT_TRUE(ExpectOutputs(batch, {Tensor::Of<float>({2, 1}, {-9, 11}),
                                    Tensor::Of<float>({1}, {3}), Tensor::Of<float>({1}, {4})}));
}

TEST(BatchNormalizationTest, AgreesWithReference) {
  for (const Shape& shape : {Shape{4, 3}, Shape{4, 3, 7}, Shape{3, 5, 6, 7}, Shape{0, 3, 2, 2}}) {
    EXPECT_TRUE(CheckKernelAgainstReference(BatchCase(shape, false)));
    EXPECT_TRUE(CheckKernelAgainstReference(BatchCase(shape, true, {true, true, true})));
    EXPECT_TRUE(CheckKernelAgainstReference(InFloat64(BatchCase(shape, true, {true, true, true})),
                                            {.of_magnitude = 1e-13}));
  }
}

TEST(BatchNormalizationTest, SaysWhatDoesNotFit) {
  OpCase batch = BatchCase({2, 3, 4}, false);
  batch.inputs[3] = RandomTensor({4}, 1);
  EXPECT_TRUE(ExpectError(batch, absl::StatusCode::kInvalidArgument,
                          {"input 3", "[4]", "channel", "[2,3,4]"}));
  EXPECT_TRUE(ExpectError(BatchCase({2, 3}, false, {true, true}),
                          absl::StatusCode::kInvalidArgument, {"training_mode"}));
}

TEST(BatchNormalizationTest, GradientsAgreeWithDifferences) {
  for (const bool training : {false, true}) {
    const GradientCheckOptions options{.inputs = {0, 1, 2}};
    EXPECT_TRUE(CheckGradient(BatchCase({4, 3, 5}, training), options));
    EXPECT_TRUE(CheckGradient(BatchCase({3, 2, 2, 3}, training), options));
  }
}

TEST(BatchNormalizationTest, NoSamplesGiveZeroGradients) {
  const OpCase gradient{
      .domain = kWeft,
      .op = "BatchNormalizationGrad",
      .attributes = {{"training_mode", int64_t{1}}},
      .inputs = {RandomTensor({0, 2, 3}, 1), RandomTensor({0, 2, 3}, 2), RandomTensor({2}, 3)},
      .outputs = {true, true, true}};
  EXPECT_TRUE(ExpectOutputs(gradient, {RandomTensor({0, 2, 3}, 1), Tensor::Of<float>({2}, {0, 0}),
                                       Tensor::Of<float>({2}, {0, 0})}));
}

TEST(BatchNormalizationTest, SplitsSamplesOnlyWithGivenStatistics) {
  EXPECT_TRUE(CheckSharding(BatchCase({4, 3, 5}, false), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(BatchCase({4, 3, 5}, true, {true, true, true}), {.min_splits = 2}));
  OpCase gradient{
      .domain = kWeft,
      .op = "BatchNormalizationGrad",
      .attributes = {{"training_mode", int64_t{0}}},
      .inputs = {RandomTensor({4, 3, 5}, 1), RandomTensor({4, 3, 5}, 2), RandomTensor({3}, 3),
                 RandomTensor({3}, 4), RandomTensor({3}, 5, 0.5, 2)},
      .outputs = {true, true, true}};
  EXPECT_TRUE(CheckSharding(gradient, {.min_splits = 6}));
  gradient.attributes.Set("training_mode", int64_t{1});
  gradient.inputs.resize(3);
  EXPECT_TRUE(CheckSharding(gradient, {.min_splits = 2}));
}

}  // namespace
}  // namespace weft::testing
