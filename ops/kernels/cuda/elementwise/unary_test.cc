// Operators of one operand on the emulated GPU.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Nothing, one element, a packet and one more, a prime of several blocks.
std::vector<Shape> SizesOfMaps() { return {{0}, {}, {17}, {3, 683}}; }

// The GPU's kernel gives the bits of the CPU's.
::testing::AssertionResult UnaryBitsOfCpu(const OpCase& op_case) {
  const auto expected = RunOp(op_case);
  if (!expected.ok()) return ::testing::AssertionFailure() << expected.status();
  const auto actual = RunOnEmulatedGpu(op_case);
  if (!actual.ok()) return ::testing::AssertionFailure() << actual.status();
  return TensorsNear(actual->at(0), expected->at(0), {.of_magnitude = 0, .absolute = 0});
}

struct FunctionCase {
  std::string op;
  double low = -3;
  double high = 3;
  Attributes attributes = {};
};

class FloatFunctionTest : public ::testing::TestWithParam<FunctionCase> {
 protected:
  static OpCase Of(const Shape& shape, DType dtype) {
    const FunctionCase& c = GetParam();
    return {.op = c.op,
            .attributes = c.attributes,
            .inputs = {RandomTensor(shape, 7, c.low, c.high, dtype)}};
  }
};

TEST_P(FloatFunctionTest, AgreesWithTheReference) {
  for (const Shape& shape : SizesOfMaps()) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Of(shape, DType::kFloat32)));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(Of({53}, DType::kFloat64), {.of_magnitude = 1e-14}));
  EXPECT_TRUE(CheckOnEmulatedGpu(Of({53}, DType::kFloat16), {.of_magnitude = 1e-3}));
  EXPECT_TRUE(CheckOnEmulatedGpu(Of({53}, DType::kBfloat16), {.of_magnitude = 8e-3}));
}

INSTANTIATE_TEST_SUITE_P(
    Functions, FloatFunctionTest,
    ::testing::Values(
        FunctionCase{"Exp"}, FunctionCase{"Log", 0.01, 9}, FunctionCase{"Sqrt", 0, 9},
        FunctionCase{"Reciprocal", 0.1, 3}, FunctionCase{"Erf"}, FunctionCase{"Sin", -9, 9},
        FunctionCase{"Cos", -9, 9}, FunctionCase{"Tan", -1.2, 1.2}, FunctionCase{"Asin", -1, 1},
        FunctionCase{"Acos", -1, 1}, FunctionCase{"Atan"}, FunctionCase{"Sinh"},
        FunctionCase{"Cosh"}, FunctionCase{"Asinh"}, FunctionCase{"Acosh", 1, 9},
        FunctionCase{"Atanh", -0.9, 0.9}, FunctionCase{"Ceil"}, FunctionCase{"Floor"},
        FunctionCase{"Round"}, FunctionCase{"Neg"}, FunctionCase{"Abs"}, FunctionCase{"Sign"},
        FunctionCase{"Relu"}, FunctionCase{"IsNaN"}, FunctionCase{"IsInf"},
        FunctionCase{"Sigmoid", -9, 9}, FunctionCase{"Tanh", -9, 9}, FunctionCase{"LeakyRelu"},
        FunctionCase{"Elu", -3, 3, {{"alpha", 0.7f}}},
        FunctionCase{"Celu", -3, 3, {{"alpha", 1.3f}}}, FunctionCase{"Selu"},
        FunctionCase{"HardSigmoid", -9, 9, {{"alpha", 0.15f}}}, FunctionCase{"HardSwish", -6, 6},
        FunctionCase{"Softplus", -40, 40}, FunctionCase{"Softsign"}, FunctionCase{"Mish", -9, 9},
        FunctionCase{"Swish", -9, 9, {{"alpha", 1.5f}}}, FunctionCase{"ThresholdedRelu"},
        FunctionCase{"Gelu", -6, 6},
        FunctionCase{"Gelu", -6, 6, {{"approximate", std::string("tanh")}}},
        FunctionCase{"Shrink", -3, 3, {{"bias", 0.25f}, {"lambd", 1.0f}}}),
    [](const auto& info) { return info.param.op + std::to_string(info.index); });

// NaN and infinities do what they do on the CPU.
TEST(UnaryOnGpu, Extremes) {
  const Tensor x = Tensor::Of<float>({9}, std::vector<float>{0.0f, -0.0f, kInfinity, -kInfinity,
                                                             kNan, 1e30f, -1e30f, 2.5f, -0.5f});
  for (const char* op : {"Neg", "Abs", "Sign", "Relu", "Ceil", "Floor", "Round", "IsNaN", "IsInf",
                         "LeakyRelu", "ThresholdedRelu", "Shrink", "HardSigmoid"}) {
    EXPECT_TRUE(UnaryBitsOfCpu({.op = op, .inputs = {x}})) << op;
  }
  for (const char* op : {"Exp", "Sigmoid", "Tanh", "Erf", "Softplus", "Elu", "Log", "Sqrt"}) {
    EXPECT_TRUE(CheckOnEmulatedGpu({.op = op, .inputs = {x}})) << op;
  }
  EXPECT_TRUE(UnaryBitsOfCpu(
      {.op = "IsInf", .attributes = {{"detect_negative", int64_t{0}}}, .inputs = {x}}));
}

TEST(UnaryOnGpu, WholeNumbersWrapAround) {
  for (const DType dtype : {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64,
                            DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64}) {
    const Tensor ends =
        Cast(Tensor::Of<double>({7}, std::vector<double>{-1e30, -7, -1, 0, 1, 100, 1e30}), dtype);
    for (const char* op : {"Neg", "Abs", "Sign", "Relu", "Shrink", "BitwiseNot"}) {
      EXPECT_TRUE(UnaryBitsOfCpu({.op = op, .inputs = {ends}})) << op << DTypeName(dtype);
      EXPECT_TRUE(UnaryBitsOfCpu({.op = op, .inputs = {RandomTensor({3, 691}, 5, 0, 100, dtype)}}));
    }
  }
  EXPECT_TRUE(
      UnaryBitsOfCpu({.op = "Not", .inputs = {RandomTensor({1031}, 5, 0, 1, DType::kBool)}}));
}

TEST(ClipOnGpu, CutsAtEachBound) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16,
                            DType::kInt8, DType::kInt64, DType::kUint8, DType::kUint32}) {
    const double low = IsFloatingPoint(dtype) ? -1 : 3;
    const Tensor x = RandomTensor({1031}, 5, IsFloatingPoint(dtype) ? -9 : 0, 9, dtype);
    const Tensor lowest = Cast(Tensor::Scalar<double>(low), dtype);
    const Tensor largest = Cast(Tensor::Scalar<double>(6), dtype);
    EXPECT_TRUE(UnaryBitsOfCpu({.op = "Clip", .inputs = {x, lowest, largest}}));
    EXPECT_TRUE(UnaryBitsOfCpu({.op = "Clip", .inputs = {x, Tensor(), largest}}));
    EXPECT_TRUE(UnaryBitsOfCpu({.op = "Clip", .inputs = {x, lowest}}));
    EXPECT_TRUE(UnaryBitsOfCpu({.op = "Clip", .inputs = {x}}));
  }
  EXPECT_TRUE(UnaryBitsOfCpu(
      {.op = "Clip",
       .inputs = {Tensor::Of<float>({3}, std::vector<float>{kNan, kInfinity, -kInfinity}),
                  Tensor::Scalar<float>(0), Tensor::Scalar<float>(1)}}));
}

TEST(UnaryOnGpu, WhatIsMissingIsRefused) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.op = "IsNaN",
       .inputs = {Cast(Tensor::Of<float>({2}, std::vector<float>{1, 2}), DType::kFloat8E5M2)}},
      absl::StatusCode::kUnimplemented, {"float8e5m2"}));
}

// ---- Cast.

const DType kByteTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16,
                            DType::kInt8,    DType::kInt16,   DType::kInt32,   DType::kInt64,
                            DType::kUint8,   DType::kUint16,  DType::kUint32,  DType::kUint64,
                            DType::kBool};

TEST(CastOnGpu, GivesTheBitsOfTheCpuForEveryPair) {
  std::vector<double> values = {0,      1,       -1,         2.5,    -3.75, 100.3, 70000.7,
                                -70000, 1e30,    -1e30,      1e-300, 1e300, -0.0,  2147483647,
                                255.9,  -129.25, 4294967296, 1e-7,   65519, 65520, 0.1};
  // Just beside the middle of two 16-bit floats: rounded once.
  for (const double scale : {1.0, -1.0, 1e-6}) {
    for (const double lost : {0x1p-40, -0x1p-40, 0.0}) {
      values.push_back(scale * (1 + 0x1p-11 + lost));
      values.push_back(scale * (1 + 3 * 0x1p-11 + lost));
      values.push_back(scale * (1 + 0x1p-8 + lost));
    }
  }
  const Tensor tensor = Tensor::Of<double>({static_cast<int64_t>(values.size())}, values);
  for (const DType from : kByteTypes) {
    const Tensor x = Cast(tensor, from);
    for (const DType to : kByteTypes) {
      EXPECT_TRUE(UnaryBitsOfCpu(
          {.op = "Cast", .attributes = {{"to", static_cast<int64_t>(to)}}, .inputs = {x}}))
          << DTypeName(from) << " to " << DTypeName(to);
    }
  }
}

TEST(CastOnGpu, CutsOffWhenAsked) {
  for (const DType from : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    EXPECT_TRUE(UnaryBitsOfCpu({.op = "Cast",
                                .attributes = {{"to", static_cast<int64_t>(DType::kBfloat16)},
                                               {"round_mode", std::string("down")}},
                                .inputs = {RandomTensor({67}, 3, -9, 9, from)}}));
  }
}

TEST(CastOnGpu, CopiesBits) {
  EXPECT_TRUE(UnaryBitsOfCpu({.op = "BitCast",
                              .attributes = {{"to", static_cast<int64_t>(DType::kInt32)}},
                              .inputs = {RandomTensor({41}, 3, 0, 900, DType::kUint32)}}));
  EXPECT_TRUE(
      ExpectErrorOnEmulatedGpu({.op = "Cast",
                                .attributes = {{"to", static_cast<int64_t>(DType::kFloat8E4M3Fn)}},
                                .inputs = {RandomTensor({4}, 3)}},
                               absl::StatusCode::kUnimplemented, {"float32", "float8e4m3fn"}));
}

}  // namespace
}  // namespace weft::testing
