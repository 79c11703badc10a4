#include <limits>

#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const std::string kWeft(kWeftDomain);
using Ints = std::vector<int64_t>;

OpCase PoolCase(const std::string& op, Tensor x, Attributes attributes,
                std::vector<bool> outputs = {true}) {
  return {.op = op,
          .attributes = std::move(attributes),
          .inputs = {std::move(x)},
          .outputs = std::move(outputs)};
}

// Attributes over every feature that a pool of two image axes has.
std::vector<Attributes> WindowsOverSevenByEight() {
  return {{{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}},
          {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{1, 2}}},
          {{"kernel_shape", Ints{3, 3}}},
          {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}},
          {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{3, 3}}, {"ceil_mode", int64_t{1}}},
          {{"kernel_shape", Ints{2, 3}}, {"dilations", Ints{2, 3}}, {"pads", Ints{0, 2, 1, 0}}},
          {{"kernel_shape", Ints{2, 3}}, {"auto_pad", std::string("SAME_UPPER")}},
          {{"kernel_shape", Ints{2, 4}},
           {"auto_pad", std::string("SAME_LOWER")},
           {"strides", Ints{2, 3}}}};
}

TEST(MaxPoolTest, TakesTheLargestByHand) {
  const Tensor x = Tensor::Of<float>({1, 1, 2, 4}, {1, 5, -3, -2, 4, 0, -8, -9});
  const Attributes window = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  EXPECT_TRUE(ExpectOutputs(
      PoolCase("MaxPool", x, window, {true, true}),
      {Tensor::Of<float>({1, 1, 1, 2}, {5, -2}), Tensor::Of<int64_t>({1, 1, 1, 2}, {1, 3})}));
}

TEST(MaxPoolTest, AgreesWithReferenceWithAndWithoutIndices) {
  for (const Attributes& window : WindowsOverSevenByEight()) {
    for (const Shape& shape : {Shape{2, 3, 7, 8}, Shape{1, 1, 34, 36}}) {
      const Tensor x = RandomDistinct(shape, 1);
      EXPECT_TRUE(CheckKernelAgainstReference(PoolCase("MaxPool", x, window)));
      EXPECT_TRUE(CheckKernelAgainstReference(PoolCase("MaxPool", x, window, {true, true})));
    }
  }
}

TEST(MaxPoolTest, AgreesWithReferenceOnOneAndThreeAxes) {
  EXPECT_TRUE(CheckKernelAgainstReference(PoolCase("MaxPool", RandomDistinct({2, 3, 9}, 1),
                                                   {{"kernel_shape", Ints{2}}}, {true, true})));
  EXPECT_TRUE(CheckKernelAgainstReference(
      PoolCase("MaxPool", RandomDistinct({2, 3, 4, 5, 6}, 1),
               {{"kernel_shape", Ints{2, 3, 2}}, {"storage_order", int64_t{1}}}, {true, true})));
}

TEST(MaxPoolTest, OtherTypesAreExact) {
  const Attributes window = {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}};
  for (const DType dtype : {DType::kInt8, DType::kUint8}) {
    const double low = dtype == DType::kInt8 ? -100 : 0;
    EXPECT_TRUE(CheckKernelAgainstReference(
        PoolCase("MaxPool", RandomTensor({1, 2, 5, 5}, 1, low, 100, dtype), window),
        {.of_magnitude = 0}));
  }
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kFloat64}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        PoolCase("MaxPool", Cast(RandomTensor({1, 2, 5, 5}, 1), dtype), window),
        {.of_magnitude = 0}));
  }
}

TEST(MaxPoolTest, NanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of<float>({1, 1, 2, 4}, {1, nan, 3, 4, nan, 0, 9, 0});
  const Attributes window = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  const auto y = RunOp(PoolCase("MaxPool", x, window));
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_TRUE(TensorsNear((*y)[0], Tensor::Of<float>({1, 1, 1, 2}, {nan, 9})));
}

TEST(MaxPoolTest, NoSamplesGiveNoOutput) {
  EXPECT_TRUE(CheckKernelAgainstReference(
      PoolCase("MaxPool", RandomTensor({0, 2, 4, 4}, 1), {{"kernel_shape", Ints{2, 2}}})));
}

TEST(MaxPoolTest, SaysWhatDoesNotFit) {
  const Tensor x = RandomTensor({1, 2, 4, 4}, 1);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_TRUE(ExpectError(PoolCase("MaxPool", x, {{"kernel_shape", Ints{2}}}), invalid,
                          {"kernel_shape", "1", "[1,2,4,4]"}));
  EXPECT_TRUE(ExpectError(PoolCase("MaxPool", x, {{"kernel_shape", Ints{5, 5}}}), invalid,
                          {"does not fit"}));
}

TEST(MaxPoolTest, GradientsAgreeWithDifferences) {
  for (const Attributes& window : WindowsOverSevenByEight()) {
    EXPECT_TRUE(CheckGradient(PoolCase("MaxPool", RandomDistinct({1, 2, 7, 8}, 1), window)));
  }
  EXPECT_TRUE(CheckGradient(
      PoolCase("MaxPool", RandomDistinct({2, 2, 7}, 1), {{"kernel_shape", Ints{3}}})));
}

TEST(MaxPoolTest, GradientGoesToTheFirstOfEqualOnes) {
  const OpCase gradient{
      .domain = kWeft,
      .op = "MaxPoolGrad",
      .attributes = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}},
      .inputs = {Tensor::Of<float>({1, 1, 2, 4}, {0, 2, 1, 1, 2, 2, 1, 1}),
                 Tensor::Of<float>({1, 1, 1, 2}, {2, 1}), Tensor::Of<float>({1, 1, 1, 2}, {7, 9})}};
  EXPECT_TRUE(ExpectOutputs(gradient, {Tensor::Of<float>({1, 1, 2, 4}, {0, 7, 9, 0, 0, 0, 0, 0})}));
}

TEST(MaxPoolTest, ShardsBySampleAndChannel) {
  const Attributes window = {{"kernel_shape", Ints{2, 2}}};
  const Tensor x = RandomDistinct({4, 3, 4, 4}, 1);
  EXPECT_TRUE(CheckSharding(PoolCase("MaxPool", x, window), {.min_splits = 4}));
  // Indices of a shard in blocks could not be told.
  EXPECT_TRUE(CheckSharding(PoolCase("MaxPool", x, window, {true, true}), {.min_splits = 0}));
  const auto y = RunOp(PoolCase("MaxPool", x, window));
  ASSERT_TRUE(y.ok()) << y.status();
  const OpCase gradient{.domain = kWeft,
                        .op = "MaxPoolGrad",
                        .attributes = window,
                        .inputs = {x, (*y)[0], RandomTensor({4, 3, 3, 3}, 2)}};
  EXPECT_TRUE(CheckSharding(gradient, {.min_splits = 4}));
}

TEST(AveragePoolTest, DividesByWhatItCountsByHand) {
  const Tensor x = Tensor::Of<float>({1, 1, 3}, {2, 4, 6});
  Attributes window = {{"kernel_shape", Ints{2}}, {"pads", Ints{1, 0}}, {"strides", Ints{2}}};
  EXPECT_TRUE(
      ExpectOutputs(PoolCase("AveragePool", x, window), {Tensor::Of<float>({1, 1, 2}, {2, 5})}));
  window.Set("count_include_pad", int64_t{1});
  EXPECT_TRUE(
      ExpectOutputs(PoolCase("AveragePool", x, window), {Tensor::Of<float>({1, 1, 2}, {1, 5})}));
}

TEST(AveragePoolTest, AgreesWithReferenceAndDifferences) {
  for (Attributes window : WindowsOverSevenByEight()) {
    for (const int64_t count : {0, 1}) {
      window.Set("count_include_pad", count);
      const OpCase pool = PoolCase("AveragePool", RandomTensor({2, 2, 7, 8}, 1), window);
      EXPECT_TRUE(CheckKernelAgainstReference(pool));
      EXPECT_TRUE(CheckGradient(pool));
    }
  }
}

TEST(AveragePoolTest, ShardsBySampleAndChannel) {
  EXPECT_TRUE(CheckSharding(
      PoolCase("AveragePool", RandomTensor({4, 3, 4, 4}, 1), {{"kernel_shape", Ints{2, 2}}}),
      {.min_splits = 4}));
  const OpCase gradient{.domain = kWeft,
                        .op = "AveragePoolGrad",
                        .attributes = {{"kernel_shape", Ints{2, 2}}},
                        .inputs = {RandomTensor({4, 3, 3, 3}, 1), Int64s({4, 3, 4, 4})}};
  EXPECT_TRUE(CheckSharding(gradient, {.min_splits = 4}));
}

TEST(GlobalAveragePoolTest, AgreesWithReferenceAndDifferences) {
  for (const Shape& shape : {Shape{2, 3, 4, 4}, Shape{1, 2, 7}, Shape{2, 2, 3, 5, 7}}) {
    const OpCase pool = PoolCase("GlobalAveragePool", RandomTensor(shape, 1), {});
    EXPECT_TRUE(CheckKernelAgainstReference(pool));
    EXPECT_TRUE(CheckGradient(pool));
  }
}

TEST(GlobalAveragePoolTest, ShardsBySampleAndChannel) {
  EXPECT_TRUE(CheckSharding(PoolCase("GlobalAveragePool", RandomTensor({4, 3, 4, 4}, 1), {}),
                            {.min_splits = 4}));
  const OpCase gradient{.domain = kWeft,
                        .op = "GlobalAveragePoolGrad",
                        .inputs = {RandomTensor({4, 3, 1, 1}, 1), Int64s({4, 3, 4, 4})}};
  EXPECT_TRUE(CheckSharding(gradient, {.min_splits = 4}));
}

}  // namespace
}  // namespace weft::testing
