// Quantized operators on the emulated GPU: the bits of the CPU's kernels.
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// All outputs have the bits of the CPU's kernel, in two orders of threads.
::testing::AssertionResult GivesBitsOfCpu(const OpCase& op_case) {
  const auto expected = RunOp(op_case);
  if (!expected.ok()) return ::testing::AssertionFailure() << expected.status();
  for (const uint64_t seed : {1, 2}) {
    const auto actual = RunOnEmulatedGpu(op_case, {.seed = seed});
    if (!actual.ok()) return ::testing::AssertionFailure() << actual.status();
    for (size_t i = 0; i < expected->size(); ++i) {
      if (!op_case.outputs[i]) continue;
      auto near = TensorsNear(actual->at(i), expected->at(i), {.of_magnitude = 0, .absolute = 0});
      if (!near) return near << " in output " << i << " of " << op_case.ToString();
    }
  }
  return ::testing::AssertionSuccess();
}

// Numbers that a quantized type has, and some between and beyond.
Tensor Spread(const Shape& shape, DType dtype, uint64_t seed) {
  return Cast(RandomTensor(shape, seed, -40, 40), dtype);
}

std::vector<DType> Codes() {
  return {DType::kInt8,           DType::kUint8,      DType::kInt16,      DType::kUint16,
          DType::kInt4,           DType::kUint4,      DType::kInt2,       DType::kUint2,
          DType::kFloat8E4M3Fn,   DType::kFloat8E5M2, DType::kFloat4E2M1, DType::kFloat8E4M3Fnuz,
          DType::kFloat8E5M2Fnuz, DType::kFloat6E2M3, DType::kFloat6E3M2};
}

TEST(QuantizeOnGpu, EveryTypeOfCodes) {
  for (const DType dtype : Codes()) {
    const Tensor zero = Cast(Tensor::Scalar<float>(1), dtype);
    for (const Shape& shape : {Shape{0}, Shape{7}, Shape{3, 691}}) {
      const Tensor x = RandomTensor(shape, 5, -300, 300);
      const Tensor scale = Tensor::Scalar<float>(0.75f);
      EXPECT_TRUE(GivesBitsOfCpu({.op = "QuantizeLinear", .inputs = {x, scale, zero}}))
          << DTypeName(dtype);
      EXPECT_TRUE(GivesBitsOfCpu(
          {.op = "DequantizeLinear", .inputs = {Spread(shape, dtype, 7), scale, zero}}))
          << DTypeName(dtype);
    }
  }
}

// Halves go to even, and what has no code is cut or becomes infinite or NaN.
TEST(QuantizeOnGpu, Extremes) {
  std::vector<float> values = {0.0f,   -0.0f,  kInfinity, -kInfinity, kNan,     1e30f,
                               -1e30f, 0.5f,   1.5f,      2.5f,       -2.5f,    448.0f,
                               464.0f, 465.0f, -464.0f,   57344.0f,   61440.0f, 1e-9f};
  for (int i = 0; i < 300; ++i)
    values.push_back(std::ldexp(1.0f + 0.0625f * (i % 16), i / 12 - 12));
  const Tensor x = Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
  const Tensor one = Tensor::Scalar<float>(1);
  for (const DType dtype : Codes()) {
    for (const int64_t saturate : {0, 1}) {
      EXPECT_TRUE(GivesBitsOfCpu(
          {.op = "QuantizeLinear",
           .attributes = {{"output_dtype", static_cast<int64_t>(dtype)}, {"saturate", saturate}},
           .inputs = {x, one}}))
          << DTypeName(dtype);
    }
  }
}

TEST(QuantizeOnGpu, ScalesOfAxesAndBlocks) {
  const Shape shape = {5, 13, 6};
  for (const DType dtype : {DType::kInt8, DType::kUint8, DType::kInt4, DType::kFloat8E4M3Fn}) {
    for (const int64_t axis : {0, 1, 2}) {
      for (const int64_t block : {0, 1, 4, 100}) {
        Shape scales{shape.dim(static_cast<int>(axis))};
        if (block > 0) {
          scales = shape;
          scales.set_dim(static_cast<int>(axis),
                         (shape.dim(static_cast<int>(axis)) + block - 1) / block);
        }
        const Tensor scale = RandomTensor(scales, 3, 0.1, 2);
        const Tensor zero = Cast(RandomTensor(scales, 4, 0, 5), dtype);
        const Attributes attributes = {{"axis", axis}, {"block_size", block}};
        EXPECT_TRUE(GivesBitsOfCpu({.op = "QuantizeLinear",
                                    .attributes = attributes,
                                    .inputs = {RandomTensor(shape, 5, -99, 99), scale, zero}}));
        EXPECT_TRUE(GivesBitsOfCpu({.op = "DequantizeLinear",
                                    .attributes = attributes,
                                    .inputs = {Spread(shape, dtype, 7), scale, zero}}));
      }
    }
  }
}

TEST(QuantizeOnGpu, TypesOfNumbersAndScales) {
  const Tensor x = RandomTensor({3, 67}, 5, -99, 99);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    const Tensor scale = Cast(RandomTensor({67}, 3, 0.1, 2), dtype);
    for (const int64_t precision : {0, 1, 10, 16}) {
      EXPECT_TRUE(GivesBitsOfCpu({.op = "QuantizeLinear",
                                  .attributes = {{"precision", precision}},
                                  .inputs = {Cast(x, dtype), scale}}));
    }
    EXPECT_TRUE(GivesBitsOfCpu(
        {.op = "DequantizeLinear", .inputs = {Spread({3, 67}, DType::kInt8, 7), scale}}));
  }
  const Tensor powers = Cast(RandomTensor({67}, 3, 0.1, 9), DType::kFloat8E8M0);
  EXPECT_TRUE(GivesBitsOfCpu({.op = "QuantizeLinear", .inputs = {x, powers}}));
  EXPECT_TRUE(GivesBitsOfCpu(
      {.op = "DequantizeLinear", .inputs = {Spread({3, 67}, DType::kInt4, 7), powers}}));
  EXPECT_TRUE(GivesBitsOfCpu(
      {.op = "QuantizeLinear", .inputs = {Cast(x, DType::kInt32), Tensor::Scalar<int32_t>(3)}}));
  EXPECT_TRUE(GivesBitsOfCpu({.op = "DequantizeLinear",
                              .inputs = {Cast(x, DType::kInt32), RandomTensor({67}, 3, 0.1, 2)}}));
}

TEST(QuantizeOnGpu, RefusesInt32) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.op = "QuantizeLinear",
       .attributes = {{"output_dtype", static_cast<int64_t>(DType::kInt32)}},
       .inputs = {RandomTensor({3}, 5), Tensor::Scalar<float>(1)}},
      absl::StatusCode::kUnimplemented, {"QuantizeLinear", "int32"}));
}

TEST(DynamicQuantizeOnGpu, RangesOfAllKinds) {
  const auto check = [](const Tensor& x) {
    return GivesBitsOfCpu(
        {.op = "DynamicQuantizeLinear", .inputs = {x}, .outputs = {true, true, true}});
  };
  EXPECT_TRUE(check(RandomTensor({3, 691}, 5, -3, 7)));
  EXPECT_TRUE(check(RandomTensor({31}, 5, 2, 7)));
  EXPECT_TRUE(check(RandomTensor({31}, 5, -7, -2)));
  EXPECT_TRUE(check(Tensor::Of<float>({3}, std::vector<float>{0, 0, 0})));
  EXPECT_TRUE(check(Tensor::Of<float>({3}, std::vector<float>{-1, kInfinity, 2})));
}

// ---- Fake quantization.

TEST(FakeWeightOnGpu, ScalesOfAllKinds) {
  for (const DType codes : {DType::kInt8, DType::kInt4, DType::kFloat8E4M3Fn}) {
    const auto to = static_cast<int64_t>(codes);
    const std::vector<bool> both = {true, true};
    // One for all, of several pieces of a row.
    EXPECT_TRUE(GivesBitsOfCpu({.domain = "ai.weft",
                                .op = "FakeQuantizeWeight",
                                .attributes = {{"to", to}},
                                .inputs = {RandomTensor({5, 1009}, 3, -2, 3)},
                                .outputs = both}));
    for (const Shape& shape : {Shape{131, 7}, Shape{5, 13, 6}, Shape{3, 2, 41}, Shape{0, 4}}) {
      for (int64_t axis = 0; axis < shape.rank(); ++axis) {
        for (const int64_t block : {0, 4, 200}) {
          EXPECT_TRUE(
              GivesBitsOfCpu({.domain = "ai.weft",
                              .op = "FakeQuantizeWeight",
                              .attributes = {{"to", to}, {"axis", axis}, {"block_size", block}},
                              .inputs = {RandomTensor(shape, 3, -2, 3)},
                              .outputs = both}));
        }
      }
    }
    const Tensor special =
        Tensor::Of<float>({3, 2}, std::vector<float>{0, -0.0f, kInfinity, 1, kNan, -1e-40f});
    EXPECT_TRUE(GivesBitsOfCpu({.domain = "ai.weft",
                                .op = "FakeQuantizeWeight",
                                .attributes = {{"to", to}, {"axis", int64_t{0}}},
                                .inputs = {special}}));
  }
}

TEST(FakeQuantizeOnGpu, ForwardAndBackward) {
  std::vector<float> values = {0.0f, -0.0f, kInfinity, -kInfinity, kNan, 1e30f, -1e-39f, 3.0f};
  const Tensor special = Tensor::Of<float>({8}, values);
  const std::vector<std::vector<float>> ranges = {{-2, 3, 1}, {0, 0, 0},      {0, 0, 1},
                                                  {1, 6, 2},  {-3, -1, 0.5f}, {-1e-39f, 1e-39f, 1}};
  for (const DType codes : {DType::kUint8, DType::kFloat8E4M3Fn}) {
    const Attributes to = {{"to", static_cast<int64_t>(codes)}};
    for (const std::vector<float>& numbers : ranges) {
      const Tensor range = Tensor::Of<float>({3}, numbers);
      for (const Tensor& x : {RandomTensor({3, 691}, 5, -4, 5), special, RandomTensor({0}, 5)}) {
        EXPECT_TRUE(GivesBitsOfCpu({.domain = "ai.weft",
                                    .op = "FakeQuantize",
                                    .attributes = to,
                                    .inputs = {x, range},
                                    .outputs = {true, true, true}}));
        EXPECT_TRUE(GivesBitsOfCpu({.domain = "ai.weft",
                                    .op = "FakeQuantizeGrad",
                                    .attributes = to,
                                    .inputs = {RandomTensor(x.shape(), 9), x, range}}));
      }
    }
  }
}

TEST(RangeOnGpu, OfBatchesAndUpdated) {
  for (const Tensor& x :
       {RandomTensor({3, 691}, 5, -4, 5), RandomTensor({7}, 5, 1, 2), RandomTensor({7}, 5, -2, -1),
        RandomTensor({0}, 5), Tensor::Of<float>({2}, std::vector<float>{kNan, 1}),
        Tensor::Of<float>({2}, std::vector<float>{-kInfinity, 1})}) {
    EXPECT_TRUE(GivesBitsOfCpu({.domain = "ai.weft", .op = "RangeOfBatch", .inputs = {x}}));
  }
  const Tensor range = Tensor::Of<float>({3}, std::vector<float>{-1, 2, 0.75f});
  for (const Tensor& rows : {RandomTensor({64, 2}, 5, -4, 5),
                             Tensor::Of<float>({2, 2}, std::vector<float>{-1, 3, kNan, 1})}) {
    EXPECT_TRUE(GivesBitsOfCpu({.domain = "ai.weft",
                                .op = "UpdateRange",
                                .attributes = {{"decay", 0.9f}},
                                .inputs = {range, rows}}));
  }
}

}  // namespace
}  // namespace weft::testing
