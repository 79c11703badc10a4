// The expansions of com.microsoft's quantized ops against plain computations.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/expanded_op.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

Tensor Codes(const Shape& shape, uint64_t seed) {
  return RandomTensor(shape, seed, 0, 255, DType::kUint8);
}
Tensor Scale(float value) { return Tensor::Scalar<float>(value); }
Tensor Zero(float value) { return Cast(Tensor::Scalar<float>(value), DType::kUint8); }

// The outputs of the expansion, as numbers.
std::vector<double> NumbersOf(const std::string& op, std::vector<Tensor> inputs,
                              Attributes attributes = {}) {
  const auto outputs = RunExpanded(OpCase{.domain = "com.microsoft",
                                          .op = op,
                                          .attributes = std::move(attributes),
                                          .inputs = std::move(inputs)});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *ToDoubles((*outputs)[0]) : std::vector<double>();
}

double Code(double value, double scale, double zero) {
  return std::clamp(std::nearbyint(value / scale) + zero, 0.0, 255.0);
}

TEST(QuantizedMicrosoft, AddAndMul) {
  const Tensor a = Codes({3, 4}, 1);
  const Tensor b = Codes({4}, 2);
  const std::vector<Tensor> inputs = {a,       Scale(0.5f),  Zero(100), b, Scale(0.25f),
                                      Zero(7), Scale(0.75f), Zero(90)};
  const std::vector<double> sums = NumbersOf("QLinearAdd", inputs);
  const std::vector<double> products = NumbersOf("QLinearMul", inputs);
  ASSERT_EQ(sums.size(), 12u);
  ASSERT_EQ(products.size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    const double x = ((*ToDoubles(a))[i] - 100) * 0.5;
    const double y = ((*ToDoubles(b))[i % 4] - 7) * 0.25;
    EXPECT_EQ(sums[i], Code(x + y, 0.75, 90));
    EXPECT_EQ(products[i], Code(x * y, 0.75, 90));
  }
}

TEST(QuantizedMicrosoft, LeakyReluKeepsItsSlope) {
  const Tensor x = Codes({7}, 1);
  const std::vector<double> y = NumbersOf(
      "QLinearLeakyRelu", {x, Scale(0.5f), Zero(128), Scale(0.25f), Zero(30)}, {{"alpha", 0.25f}});
  ASSERT_EQ(y.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    const double value = ((*ToDoubles(x))[i] - 128) * 0.5;
    EXPECT_EQ(y[i], Code(value < 0 ? 0.25 * value : value, 0.25, 30));
  }
}

TEST(QuantizedMicrosoft, WithoutZeroPointTheCodesKeepTheirType) {
  const Tensor x = RandomTensor({1, 2, 2, 2}, 1, -100, 100, DType::kInt8);
  const auto y = RunExpanded(OpCase{.domain = "com.microsoft",
                                    .op = "QLinearGlobalAveragePool",
                                    .inputs = {x, Scale(1), {}, Scale(1), {}}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].dtype(), DType::kInt8);
  EXPECT_EQ((*y)[0].shape(), (Shape{1, 2, 1, 1}));
}

TEST(QuantizedMicrosoft, ConcatBringsItsPartsToOneScale) {
  const Tensor a = Codes({2}, 1);
  const Tensor b = Codes({3}, 2);
  const std::vector<double> y = NumbersOf(
      "QLinearConcat", {Scale(0.5f), Zero(10), a, Scale(0.25f), Zero(20), b, Scale(0.5f), Zero(10)},
      {{"axis", int64_t{0}}});
  ASSERT_EQ(y.size(), 5u);
  EXPECT_EQ(y[0], Code(((*ToDoubles(a))[0] - 20) * 0.25, 0.5, 10));
  EXPECT_EQ(y[4], (*ToDoubles(b))[2]);
}

TEST(QuantizedMicrosoft, ProductsAsFloats) {
  const Tensor a = Codes({2, 3}, 1);
  const Tensor b = RandomTensor({3, 2}, 2, -99, 99, DType::kInt8);
  const Tensor bias = RandomTensor({2}, 3);
  const std::vector<double> y =
      NumbersOf("MatMulIntegerToFloat", {a, b, Scale(0.5f), Scale(0.25f), Zero(9), {}, bias});
  ASSERT_EQ(y.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    double sum = 0;
    for (size_t k = 0; k < 3; ++k) {
      sum += ((*ToDoubles(a))[i / 2 * 3 + k] - 9) * (*ToDoubles(b))[k * 2 + i % 2];
    }
    EXPECT_NEAR(y[i], sum * 0.125 + (*ToDoubles(bias))[i % 2], 1e-3);
  }
}

TEST(QuantizedMicrosoft, ActivationsMayBeQuantizedOnTheWay) {
  const Tensor a = RandomTensor({4, 8}, 1, -2, 3);
  const Tensor b = RandomTensor({8, 3}, 2, -99, 99, DType::kInt8);
  const std::vector<double> y = NumbersOf("DynamicQuantizeMatMul", {a, b, Scale(0.01f)});
  ASSERT_EQ(y.size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    double sum = 0;
    for (size_t k = 0; k < 8; ++k) {
      sum += (*ToDoubles(a))[i / 3 * 8 + k] * (*ToDoubles(b))[k * 3 + i % 3] * 0.01;
    }
    EXPECT_NEAR(y[i], sum, 0.08);  // 8 errors of half a step of 5 / 255, times up to 1
  }
}

}  // namespace
}  // namespace weft::testing
