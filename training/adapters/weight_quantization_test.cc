// The recipe by hand, by its bound, and by the operator that reads what it makes.
#include "training/adapters/weight_quantization.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr BaseQuantization kInt8 = {DType::kInt8, 64};

std::vector<double> Numbers(const Tensor& tensor) { return *ToDoubles(tensor); }

QuantizedWeight Quantized(const Tensor& weight, const BaseQuantization& spec, int output_axis) {
  auto quantized = QuantizeWeight(weight, spec, output_axis);
  EXPECT_TRUE(quantized.ok()) << quantized.status();
  return *std::move(quantized);
}

TEST(QuantizeWeightTest, Int8HasAScaleForEachOutput) {
  // Columns are outputs; the largest magnitudes are 127, 254 and 0. Ties go to even.
  const Tensor weight =
      Tensor::Of<float>({3, 3}, std::vector<float>{127, 254, 0, -63.5, 3, 0, 62.5, -254, 0});
  const QuantizedWeight columns = Quantized(weight, kInt8, 1);
  EXPECT_EQ(columns.codes.dtype(), DType::kInt8);
  EXPECT_EQ(columns.axis, 1);
  EXPECT_EQ(columns.block, 0);
  EXPECT_THAT(Numbers(columns.scales), ElementsAre(1, 2, 1));
  EXPECT_THAT(Numbers(columns.codes), ElementsAre(127, 127, 0, -64, 2, 0, 62, -127, 0));
  EXPECT_THAT(Numbers(*DequantizeWeight(columns)),
              ElementsAre(127, 254, 0, -64, 4, 0, 62, -254, 0));
  const QuantizedWeight rows = Quantized(weight, kInt8, 0);
  EXPECT_THAT(Numbers(rows.scales), ElementsAre(2, 0.5, 2));
}

TEST(QuantizeWeightTest, Int4HasAScaleForEachBlockOfInputs) {
  // Inputs are rows: blocks of 2, 2 and 1.
  const Tensor weight =
      Tensor::Of<float>({5, 2}, std::vector<float>{7, 0, 2.5, 0, -14, 3.5, 7, -7, 0.5, -0.25});
  const QuantizedWeight quantized = Quantized(weight, {DType::kInt4, 2}, 1);
  EXPECT_EQ(quantized.codes.dtype(), DType::kInt4);
  EXPECT_EQ(quantized.axis, 0);
  EXPECT_EQ(quantized.block, 2);
  EXPECT_EQ(quantized.scales.shape(), (Shape{3, 2}));
  EXPECT_THAT(Numbers(quantized.scales), ElementsAre(1, 1, 2, 1, 0.5f / 7, 0.25f / 7));
  EXPECT_THAT(Numbers(quantized.codes), ElementsAre(7, 0, 2, 0, -7, 4, 4, -7, 7, -7));
  EXPECT_EQ(quantized.codes.bytes(), 5u);
}

TEST(QuantizeWeightTest, AConvolutionHasAScaleForEachChannel) {
  const Tensor kernel = testing::RandomTensor({5, 3, 2, 2}, 1, -1, 1);
  const QuantizedWeight quantized = Quantized(kernel, {DType::kInt4, 64}, 0);
  EXPECT_EQ(quantized.axis, 0);
  EXPECT_EQ(quantized.block, 0);
  EXPECT_EQ(quantized.scales.shape(), (Shape{5}));
}

// |w - s q| <= s / 2, and what DequantizeLinear makes is what we say that it makes.
TEST(QuantizeWeightTest, TheErrorIsHalfAScaleAndTheOperatorAgrees) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    for (const Shape& shape : {Shape{67, 5}, Shape{4, 130}, Shape{1, 1}, Shape{3, 5, 3, 3}}) {
      for (const BaseQuantization& spec :
           {kInt8, BaseQuantization{DType::kInt4, 64}, BaseQuantization{DType::kInt4, 7}}) {
        for (const int output_axis : {0, 1}) {
          if (shape.rank() > 2 && output_axis == 1) continue;
          const Tensor weight = *CastTensor(testing::RandomTensor(shape, 7, -3, 3), dtype);
          const QuantizedWeight q = Quantized(weight, spec, output_axis);
          const auto whole = DequantizeWeight(q);
          ASSERT_TRUE(whole.ok()) << whole.status();
          Attributes attributes = {{"axis", int64_t{q.axis}}};
          if (q.block > 0) attributes.Set("block_size", q.block);
          const auto made = testing::RunOp(
              {.op = "DequantizeLinear", .attributes = attributes, .inputs = {q.codes, q.scales}});
          ASSERT_TRUE(made.ok()) << made.status();
          EXPECT_TRUE(BitwiseEqual(made->at(0), *whole)) << shape.ToString();
          double largest = 0;  // no group's scale is larger
          for (const double scale : Numbers(q.scales)) largest = std::max(largest, scale);
          const double limit = spec.dtype == DType::kInt4 ? 7 : 127;
          EXPECT_LE(largest, 3 / limit * 1.01);
          // The product is rounded to the type; its last bits count for large codes.
          const double rounding = dtype == DType::kFloat32   ? 1e-6
                                  : dtype == DType::kFloat16 ? 2e-3
                                                             : 2e-2;
          const std::vector<double> w = Numbers(weight), d = Numbers(*whole);
          double error = 0;
          for (size_t i = 0; i < w.size(); ++i) {
            EXPECT_LE(std::abs(w[i] - d[i]), largest / 2 + rounding) << i;
            error = std::max(error, std::abs(w[i] - d[i]));
          }
          if (w.size() > 100) {
            EXPECT_GT(error, 0.2 * largest);
          }
        }
      }
    }
  }
}

TEST(QuantizeWeightTest, SmallBlocksBoundTheErrorOfEach) {
  // The second block is a thousand times smaller than the first, and so is its error.
  std::vector<float> values(128);
  const Tensor random = testing::RandomTensor({1, 128}, 3, -1, 1);
  for (size_t i = 0; i < 128; ++i) values[i] = random.data<float>()[i] * (i < 64 ? 1 : 1e-3F);
  const Tensor weight = Tensor::Of<float>({1, 128}, values);
  const auto whole = DequantizeWeight(Quantized(weight, {DType::kInt4, 64}, 0));
  for (size_t i = 64; i < 128; ++i) {
    EXPECT_LE(std::abs(whole->data<float>()[i] - values[i]), 1e-3 / 14 * 1.0001);
  }
}

// 65504 / 127 and 65504 / 7 are rounded up in float16; times 127 and 7 these are infinite.
TEST(QuantizeWeightTest, TheLargestNumbersOfATypeStayFinite) {
  for (const auto& [dtype, largest, part] :
       {std::tuple(DType::kFloat16, 65504.0F, 0.01),
        std::tuple(DType::kBfloat16, 0x1.FEp127F, 0.02),
        std::tuple(DType::kFloat32, std::numeric_limits<float>::max(), 1e-6)}) {
    const Tensor weight = *CastTensor(
        Tensor::Of<float>({1, 3}, std::vector<float>{largest, -largest, largest / 2}), dtype);
    for (const BaseQuantization& spec : {kInt8, BaseQuantization{DType::kInt4, 64}}) {
      const auto whole = DequantizeWeight(Quantized(weight, spec, 0));
      ASSERT_TRUE(whole.ok()) << whole.status();
      const std::vector<double> numbers = Numbers(*whole);
      EXPECT_NEAR(numbers[0], largest, part * double{largest});
      EXPECT_NEAR(numbers[1], -largest, part * double{largest});
      EXPECT_NEAR(numbers[2], largest / 2, double{largest} / 12);
    }
  }
}

TEST(QuantizeWeightTest, WhatCannotBeQuantizedIsSaid) {
  const auto error = [](const Tensor& weight) {
    return std::string(QuantizeWeight(weight, kInt8, 0).status().message());
  };
  EXPECT_EQ(error(Tensor::Of<double>({1, 1}, std::vector<double>{1})),
            "it is float64, and DequantizeLinear makes float32, float16 and bfloat16");
  EXPECT_EQ(error(Tensor::Of<float>(
                {1, 2}, std::vector<float>{1, -std::numeric_limits<float>::infinity()})),
            "its element 1 is -inf");
}

TEST(ParseBaseQuantizationTest, TypeAndBlock) {
  EXPECT_EQ(ParseBaseQuantization({"int8"})->dtype, DType::kInt8);
  EXPECT_EQ(ParseBaseQuantization({"int4"})->block, 64);
  EXPECT_EQ(ParseBaseQuantization({"int4", "block=32"})->block, 32);
  const auto error = [](const std::vector<std::string>& items) {
    return std::string(ParseBaseQuantization(items).status().message());
  };
  EXPECT_EQ(error({"nf4"}), "--qlora nf4: expected int4, int8 or int4,block=N");
  EXPECT_THAT(error({"int4", "block=0"}), HasSubstr("--qlora block=0: expected a whole number"));
  EXPECT_THAT(error({"int8", "block=8"}), HasSubstr("no blocks"));
  EXPECT_THAT(error({"block=8"}), HasSubstr("in which type? int4 or int8"));
}

}  // namespace
}  // namespace weft
