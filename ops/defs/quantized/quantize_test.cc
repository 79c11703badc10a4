// Quantization, and products and convolutions of quantized operands. The truth is computed here, in
// double, from the definitions.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_rule.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

std::vector<double> Numbers(const Tensor& tensor) { return *ToDoubles(tensor); }

struct Range {
  double low;
  double high;
};
Range RangeOf(DType dtype) {
  const double size = std::exp2(DTypeBits(dtype));
  const bool is_signed = dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt4 ||
                         dtype == DType::kInt2;
  return is_signed ? Range{-size / 2, size / 2 - 1} : Range{0, size - 1};
}

// The place of element i's scale: of tensors [outer, size, inner] with the axis in the middle.
struct Grid {
  int64_t size = 1;
  int64_t inner = 1;
  int64_t block = 0;  // 0: one scale per index of the axis
  int64_t scales = 1;

  int64_t At(int64_t i) const {
    if (scales == 1) return 0;
    const int64_t d = i / inner % size;
    if (block == 0) return d;
    const int64_t blocks = (size + block - 1) / block;
    return (i / inner / size * blocks + d / block) * inner + i % inner;
  }
};

struct QuantizeCase {
  Shape x;
  Shape scale;
  int64_t axis;
  int64_t block;
};

Grid GridOf(const QuantizeCase& c) {
  const int axis = static_cast<int>(c.axis < 0 ? c.axis + c.x.rank() : c.axis);
  if (c.scale.num_elements() == 1) return {};
  return {c.x.dim(axis), c.x.ProductOf(axis + 1, c.x.rank()), c.block, c.scale.num_elements()};
}

const std::vector<QuantizeCase>& Cases() {
  static const auto& cases = *new std::vector<QuantizeCase>{{{7, 13}, {}, 1, 0},
                                                            {{7, 13}, {1}, 1, 0},
                                                            {{7, 13}, {13}, 1, 0},
                                                            {{7, 13}, {7}, 0, 0},
                                                            {{2, 3, 5, 7}, {3}, 1, 0},
                                                            {{2, 3, 5, 7}, {7}, -1, 0},
                                                            {{4, 6, 5}, {4, 3, 5}, 1, 2},
                                                            {{4, 7, 5}, {4, 3, 5}, 1, 3},
                                                            {{4, 9}, {4, 3}, -1, 4},
                                                            {{9, 4}, {3, 4}, 0, 4},
                                                            {{0, 3}, {3}, 1, 0},
                                                            {{}, {}, 1, 0},
                                                            {{1031}, {}, 1, 0}};
  return cases;
}

Attributes AttributesOf(const QuantizeCase& c) {
  return {{"axis", c.axis}, {"block_size", c.block}};
}

const std::vector<DType> kIntegerCodes = {DType::kUint8, DType::kInt8,  DType::kUint16,
                                          DType::kInt16, DType::kUint4, DType::kInt4,
                                          DType::kUint2, DType::kInt2};

TEST(QuantizeLinear, IntegerTypes) {
  for (const QuantizeCase& c : Cases()) {
    for (const DType dtype : kIntegerCodes) {
      const Range range = RangeOf(dtype);
      const Tensor x = RandomTensor(c.x, 1, -60, 60);
      const Tensor scale = RandomTensor(c.scale, 2, 0.2, 1);
      const Tensor zero = Cast(RandomTensor(c.scale, 3, 0, range.high, DType::kInt32), dtype);
      const auto y = RunOp(
          {.op = "QuantizeLinear", .attributes = AttributesOf(c), .inputs = {x, scale, zero}});
      ASSERT_TRUE(y.ok()) << y.status();
      const Grid grid = GridOf(c);
      std::vector<double> expected = Numbers(x);
      for (size_t i = 0; i < expected.size(); ++i) {
        const int64_t s = grid.At(static_cast<int64_t>(i));
        const float quotient = x.data<float>()[i] / scale.data<float>()[s];
        expected[i] =
            std::clamp(std::nearbyint(quotient) + Numbers(zero)[s], range.low, range.high);
      }
      EXPECT_EQ(Numbers(y->at(0)), expected) << DTypeName(dtype) << c.x.ToString();
    }
  }
}

// Splits along outputs, inputs and whole blocks; what is smaller than a byte stays whole.
TEST(DequantizeLinear, Sharding) {
  const auto op_case = [](const Shape& x, const Shape& scale, int64_t axis, int64_t block,
                          DType dtype = DType::kInt8, bool has_zero = false) {
    OpCase made{.op = "DequantizeLinear",
                .attributes = {{"axis", axis}, {"block_size", block}},
                .inputs = {Cast(RandomTensor(x, 1, -7, 7, DType::kInt32), dtype),
                           RandomTensor(scale, 2, 0.2, 1)}};
    if (has_zero) made.inputs.push_back(Cast(RandomTensor(scale, 3, 0, 5, DType::kInt32), dtype));
    return made;
  };
  const ShardingRuleOptions both = {.tolerance = 1e-6, .min_splits = 4};
  EXPECT_EQ(CheckShardingRule(op_case({6, 9}, {9}, 1, 0), both), absl::OkStatus());
  EXPECT_EQ(CheckShardingRule(op_case({6, 9}, {6}, 0, 0, DType::kUint8, true), both),
            absl::OkStatus());
  EXPECT_EQ(CheckShardingRule(op_case({6, 9}, {}, 1, 0), both), absl::OkStatus());
  EXPECT_EQ(CheckShardingRule(op_case({24, 6}, {6, 6}, 0, 4), both), absl::OkStatus());
  EXPECT_EQ(CheckShardingRule(op_case({6, 24}, {6, 6}, -1, 4, DType::kInt8, true), both),
            absl::OkStatus());
  // The last block is shorter.
  const ShardingRuleOptions one = {.tolerance = 1e-6, .min_splits = 2};
  EXPECT_EQ(CheckShardingRule(op_case({23, 6}, {6, 6}, 0, 4), one), absl::OkStatus());
  const ShardingRuleOptions none = {.tolerance = 1e-6, .min_splits = 0};
  EXPECT_EQ(CheckShardingRule(op_case({24, 6}, {6, 6}, 0, 4, DType::kInt4), none),
            absl::OkStatus());
  EXPECT_NE(CheckShardingRule(op_case({24, 6}, {6, 6}, 0, 4, DType::kInt4), one), absl::OkStatus());
}

TEST(DequantizeLinear, EveryType) {
  std::vector<DType> types = kIntegerCodes;
  types.insert(types.end(), {DType::kInt32, DType::kFloat8E4M3Fn, DType::kFloat8E5M2,
                             DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2Fnuz, DType::kFloat4E2M1,
                             DType::kFloat6E2M3, DType::kFloat6E3M2});
  for (const QuantizeCase& c : Cases()) {
    for (const DType dtype : types) {
      const double high = IsInteger(dtype) ? std::min(RangeOf(dtype).high, 99.0) : 6;
      const double low = IsInteger(dtype) ? std::max(RangeOf(dtype).low, -99.0) : 0;
      const Tensor x = Cast(RandomTensor(c.x, 1, low, high, DType::kInt32), dtype);
      const Tensor zero = Cast(RandomTensor(c.scale, 3, 0, high, DType::kInt32), dtype);
      const Tensor scale = RandomTensor(c.scale, 2, 0.2, 1);
      const auto y = RunOp(
          {.op = "DequantizeLinear", .attributes = AttributesOf(c), .inputs = {x, scale, zero}});
      ASSERT_TRUE(y.ok()) << y.status();
      const Grid grid = GridOf(c);
      std::vector<double> expected = Numbers(x);
      for (size_t i = 0; i < expected.size(); ++i) {
        const int64_t s = grid.At(static_cast<int64_t>(i));
        expected[i] = (expected[i] - Numbers(zero)[s]) * Numbers(scale)[s];
      }
      EXPECT_TRUE(TensorsNear(y->at(0), Tensor::Of<double>(c.x, expected), {},
                              /*any_dtype=*/true))
          << DTypeName(dtype);
    }
  }
}

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

TEST(QuantizeLinear, SmallFloatsSaturateUnlessToldOtherwise) {
  const Tensor zero = Cast(Floats({0}), DType::kFloat8E4M3Fn);
  OpCase op_case{.op = "QuantizeLinear",
                 .inputs = {Floats({0, 1, 2, 100000, 200}), Floats({2}), zero}};
  EXPECT_EQ(Numbers(RunOp(op_case)->at(0)), (std::vector<double>{0, 0.5, 1, 448, 96}));
  op_case.attributes.Set("saturate", int64_t{0});
  EXPECT_TRUE(std::isnan(Numbers(RunOp(op_case)->at(0))[3]));
}

TEST(QuantizeLinear, WithoutZeroPointTheAttributeSaysTheType) {
  OpCase op_case{.op = "QuantizeLinear", .inputs = {Floats({-3, 3, 300}), Floats({2})}};
  EXPECT_EQ(RunOp(op_case)->at(0).dtype(), DType::kUint8);
  op_case.attributes.Set("output_dtype", static_cast<int64_t>(DType::kInt4));
  const Tensor y = RunOp(op_case)->at(0);
  EXPECT_EQ(y.dtype(), DType::kInt4);
  EXPECT_EQ(Numbers(y), (std::vector<double>{-2, 2, 7}));
}

TEST(QuantizeLinear, HalfPrecisionDividesInItsOwnType) {
  const Tensor x = Cast(Floats({1, 2, 3.5}), DType::kFloat16);
  const Tensor scale = Cast(Floats({0.1f}), DType::kFloat16);
  const Tensor y = RunOp({.op = "QuantizeLinear", .inputs = {x, scale}})->at(0);
  EXPECT_EQ(Numbers(y), (std::vector<double>{10, 20, 35}));
}

TEST(QuantizeLinear, ScalesThatDoNotFitAreNamed) {
  EXPECT_TRUE(ExpectError(
      {.op = "QuantizeLinear", .inputs = {RandomTensor({3, 4}, 1), RandomTensor({3}, 2)}},
      absl::StatusCode::kInvalidArgument, {"the scale has the shape [3]", "[4]", "axis 1"}));
}

TEST(DynamicQuantizeLinear, CoversTheRangeAndZero) {
  const OpCase op_case{.op = "DynamicQuantizeLinear",
                       .inputs = {Floats({0, 2, -3, -2.5f, 1.34f, 0.5f})},
                       .outputs = {true, true, true}};
  const auto y = RunOp(op_case);
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(Numbers(y->at(0)), (std::vector<double>{153, 255, 0, 26, 221, 179}));
  EXPECT_NEAR(Numbers(y->at(1))[0], 0.0196078438, 1e-9);
  EXPECT_EQ(Numbers(y->at(2))[0], 153);
}

// ---- Products.

// sum over k of (a - a_zero) (b - b_zero), of matrices.
std::vector<double> Product(const Tensor& a, const Tensor& b, double a_zero, double b_zero) {
  const int64_t m = a.shape().dim(0), k = a.shape().dim(1), n = b.shape().dim(1);
  const std::vector<double> x = Numbers(a), y = Numbers(b);
  std::vector<double> sums(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t l = 0; l < k; ++l) {
        sums[i * n + j] += (x[i * k + l] - a_zero) * (y[l * n + j] - b_zero);
      }
    }
  }
  return sums;
}

TEST(MatMulInteger, EveryPairOfTypes) {
  for (const DType a_type : {DType::kUint8, DType::kInt8}) {
    for (const DType b_type : {DType::kUint8, DType::kInt8}) {
      for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{
               {1, 1, 1}, {3, 4, 5}, {17, 67, 31}, {2, 0, 3}, {0, 3, 2}}) {
        const Range a_range = RangeOf(a_type), b_range = RangeOf(b_type);
        const Tensor a = RandomTensor({m, k}, 1, a_range.low, a_range.high, a_type);
        const Tensor b = RandomTensor({k, n}, 2, b_range.low, b_range.high, b_type);
        const Tensor a_zero = Cast(Floats({12}), a_type);
        const Tensor b_zero = Cast(Floats({7}), b_type);
        for (const int threads : {1, 2}) {
          const auto y = RunOp({.op = "MatMulInteger", .inputs = {a, b, a_zero, b_zero}},
                               Kernels::kProduction, threads);
          ASSERT_TRUE(y.ok()) << y.status();
          EXPECT_EQ(Numbers(y->at(0)), Product(a, b, 12, 7));
        }
      }
    }
  }
}

TEST(MatMulInteger, BatchesAndVectors) {
  const Tensor a = RandomTensor({2, 1, 3, 4}, 1, 0, 9, DType::kUint8);
  const Tensor b = RandomTensor({5, 4, 2}, 2, -9, 9, DType::kInt8);
  const auto y = RunOp({.op = "MatMulInteger", .inputs = {a, b}});
  ASSERT_TRUE(y.ok()) << y.status();
  ASSERT_EQ(y->at(0).shape(), (Shape{2, 5, 3, 2}));
  const Tensor last_a = a.Rows(1, 2).Reshaped({3, 4});
  const Tensor last_b = b.Rows(4, 5).Reshaped({4, 2});
  const Tensor last = y->at(0).Reshaped({10, 6}).Rows(9, 10);
  EXPECT_EQ(Numbers(last), Product(last_a, last_b, 0, 0));
  const auto vector =
      RunOp({.op = "MatMulInteger", .inputs = {b.Rows(0, 1).Reshaped({8}), a.Reshaped({8, 3})}});
  ASSERT_TRUE(vector.ok()) << vector.status();
  EXPECT_EQ(vector->at(0).shape(), Shape{3});
}

TEST(QLinearMatMul, RoundsTheScaledSums) {
  for (const DType scale_type : {DType::kFloat32, DType::kFloat16}) {
    const Tensor a = RandomTensor({4, 9}, 1, 0, 255, DType::kUint8);
    const Tensor b = RandomTensor({9, 5}, 2, -128, 127, DType::kInt8);
    const auto scale = [&](float value) { return Cast(Floats({value}), scale_type); };
    const OpCase op_case{
        .op = "QLinearMatMul",
        .inputs = {a, scale(0.5f), Cast(Floats({100}), DType::kUint8), b, scale(0.25f),
                   Cast(Floats({-3}), DType::kInt8), scale(32), Cast(Floats({5}), DType::kInt8)}};
    const auto y = RunOp(op_case);
    ASSERT_TRUE(y.ok()) << y.status();
    std::vector<double> expected = Product(a, b, 100, -3);
    for (double& value : expected) {
      value = std::clamp(std::nearbyint(value * 0.5 * 0.25 / 32 + 5), -128.0, 127.0);
    }
    EXPECT_EQ(Numbers(y->at(0)), expected);
  }
}

// ---- Convolutions.

TEST(ConvInteger, AgreesWithConvOfDoubles) {
  for (const int64_t group : {1, 2}) {
    const Attributes attributes = {{"group", group},
                                   {"pads", std::vector<int64_t>{1, 0, 2, 1}},
                                   {"strides", std::vector<int64_t>{2, 1}},
                                   {"dilations", std::vector<int64_t>{1, 2}}};
    const Tensor x = RandomTensor({2, 4, 7, 9}, 1, 0, 255, DType::kUint8);
    const Tensor w = RandomTensor({6, 4 / group, 3, 2}, 2, -128, 127, DType::kInt8);
    const auto integer = RunOp({.op = "ConvInteger", .attributes = attributes, .inputs = {x, w}});
    ASSERT_TRUE(integer.ok()) << integer.status();
    const auto floating = RunOp({.op = "Conv",
                                 .attributes = attributes,
                                 .inputs = {Cast(x, DType::kFloat64), Cast(w, DType::kFloat64)}},
                                Kernels::kReference);
    ASSERT_TRUE(floating.ok()) << floating.status();
    EXPECT_EQ(Numbers(integer->at(0)), Numbers(floating->at(0)));
  }
}

TEST(ConvInteger, PaddingIsTheZeroPoint) {
  const Tensor x = Cast(Tensor::Of<float>({1, 1, 2, 2}, {2, 3, 5, 6}), DType::kUint8);
  const Tensor w = Cast(Tensor::Of<float>({1, 1, 2, 2}, {1, 1, 1, 1}), DType::kUint8);
  const OpCase op_case{.op = "ConvInteger",
                       .attributes = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}},
                       .inputs = {x, w, Cast(Tensor::Scalar<float>(1), DType::kUint8)}};
  EXPECT_EQ(Numbers(RunOp(op_case)->at(0)), (std::vector<double>{1, 3, 2, 5, 12, 7, 4, 9, 5}));
}

TEST(QLinearConv, ScalesPerChannel) {
  const Tensor x = RandomTensor({1, 2, 5, 5}, 1, 0, 255, DType::kUint8);
  const Tensor w = RandomTensor({3, 2, 3, 3}, 2, -128, 127, DType::kInt8);
  const std::vector<float> w_scale = {0.5f, 0.25f, 1};
  const OpCase op_case{
      .op = "QLinearConv",
      .inputs = {x, Tensor::Scalar<float>(0.5f), Cast(Tensor::Scalar<float>(0), DType::kUint8), w,
                 Floats(w_scale), Cast(Floats({0, 0, 0}), DType::kInt8), Tensor::Scalar<float>(64),
                 Cast(Tensor::Scalar<float>(128), DType::kUint8),
                 Cast(Floats({100, -50, 7}), DType::kInt32)}};
  const auto y = RunOp(op_case);
  ASSERT_TRUE(y.ok()) << y.status();
  const auto sums = RunOp({.op = "ConvInteger", .inputs = {x, w}});
  std::vector<double> expected = Numbers(sums->at(0));
  const double bias[] = {100, -50, 7};
  for (size_t i = 0; i < expected.size(); ++i) {
    const size_t channel = i / 9;
    const double value = (expected[i] + bias[channel]) * 0.5 * w_scale[channel] / 64;
    expected[i] = std::clamp(std::nearbyint(value) + 128, 0.0, 255.0);
  }
  EXPECT_EQ(Numbers(y->at(0)), expected);
}

TEST(DynamicQuantizeLinear, InfiniteDataHasTheZeroPointZero) {
  const OpCase op_case{.op = "DynamicQuantizeLinear",
                       .inputs = {Tensor::Of<float>({2}, std::vector<float>{-INFINITY, 0})},
                       .outputs = {true, true, true}};
  const auto outputs = RunOp(op_case);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ((*outputs)[2].ToString(), "uint8[]{0}");
}

TEST(QuantizeLinear, ABlockMayBeLongerThanAnything) {
  const OpCase op_case{
      .op = "QuantizeLinear",
      .attributes = {{"axis", int64_t{1}}, {"block_size", std::numeric_limits<int64_t>::max()}},
      .inputs = {Tensor::Of<float>({2, 2}, std::vector<float>{1, 2, 4, 8}),
                 Tensor::Of<float>({2, 1}, std::vector<float>{1, 2})}};
  const auto outputs = RunOp(op_case);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ((*outputs)[0].ToString(), "uint8[2,2]{1, 2, 2, 4}");
}

}  // namespace
}  // namespace weft::testing
