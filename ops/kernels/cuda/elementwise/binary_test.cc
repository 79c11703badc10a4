// Operators of several operands on the emulated GPU.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/kernels/cuda/blocks/broadcast_plan.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// The GPU's kernel gives the bits of the CPU's.
::testing::AssertionResult BinaryBitsOfCpu(const OpCase& op_case) {
  const auto expected = RunOp(op_case);
  if (!expected.ok()) return ::testing::AssertionFailure() << expected.status();
  const auto actual = RunOnEmulatedGpu(op_case);
  if (!actual.ok()) return ::testing::AssertionFailure() << actual.status();
  return TensorsNear(actual->at(0), expected->at(0), {.of_magnitude = 0, .absolute = 0});
}

using ShapePair = std::pair<Shape, Shape>;

// Equal shapes, scalars, rows and columns, with packets and without, and nothing.
std::vector<ShapePair> BroadcastPairs() {
  return {{{3, 691}, {3, 691}},      {{1031}, {}},      {{}, {1031}},  {{7, 12}, {12}},
          {{7, 13}, {13}},           {{7, 12}, {7, 1}}, {{5, 1}, {8}}, {{2, 3, 8}, {3, 1}},
          {{2, 1, 5, 1}, {3, 1, 7}}, {{0, 3}, {3}},     {{}, {}}};
}

const DType kWholeTypes[] = {DType::kInt8,  DType::kInt16,  DType::kInt32,  DType::kInt64,
                             DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64};

Tolerance ToleranceOf(DType dtype) {
  if (dtype == DType::kFloat64) return {.of_magnitude = 1e-14};
  if (dtype == DType::kFloat16) return {.of_magnitude = 1e-3};
  if (dtype == DType::kBfloat16) return {.of_magnitude = 8e-3};
  return {};
}

struct BinaryOp {
  std::string op;
  std::string domain = "";
  Attributes attributes = {};
  bool broadcasts = true;
};

class FloatBinaryTest : public ::testing::TestWithParam<BinaryOp> {
 protected:
  static OpCase Of(const ShapePair& shapes, DType dtype) {
    const BinaryOp& c = GetParam();
    return {.domain = c.domain,
            .op = c.op,
            .attributes = c.attributes,
            .inputs = {RandomTensor(shapes.first, 7, 0.25, 2, dtype),
                       RandomTensor(shapes.second, 9, 0.5, 3, dtype)}};
  }
};

TEST_P(FloatBinaryTest, AgreesWithTheReference) {
  for (const ShapePair& shapes : BroadcastPairs()) {
    if (!GetParam().broadcasts && shapes.first != shapes.second) continue;
    EXPECT_TRUE(CheckOnEmulatedGpu(Of(shapes, DType::kFloat32)));
  }
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Of({{3, 16}, {3, 16}}, dtype), ToleranceOf(dtype)));
    if (!GetParam().broadcasts) continue;
    EXPECT_TRUE(CheckOnEmulatedGpu(Of({{3, 16}, {16}}, dtype), ToleranceOf(dtype)));
    EXPECT_TRUE(CheckOnEmulatedGpu(Of({{3, 5}, {3, 1}}, dtype), ToleranceOf(dtype)));
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, FloatBinaryTest,
                         ::testing::Values(BinaryOp{"Add"}, BinaryOp{"Sub"}, BinaryOp{"Mul"},
                                           BinaryOp{"Div"}, BinaryOp{"Pow"},
                                           BinaryOp{"Mod", "", {{"fmod", int64_t{1}}}},
                                           BinaryOp{"SwiGLU", "", {{"alpha", 1.25f}}, false},
                                           BinaryOp{"Equal"}, BinaryOp{"Less"}, BinaryOp{"Greater"},
                                           BinaryOp{"LessOrEqual"}, BinaryOp{"GreaterOrEqual"},
                                           BinaryOp{"Sum"}, BinaryOp{"Mean"}, BinaryOp{"Max"},
                                           BinaryOp{"Min"}),
                         [](const auto& info) { return info.param.op; });

// dy and x, or y, of both signs.
class SlopeTest : public ::testing::TestWithParam<const char*> {
 protected:
  static OpCase Of(const Shape& shape, DType dtype, double bound = 2) {
    return {.domain = "ai.weft",
            .op = GetParam(),
            .inputs = {RandomTensor(shape, 1, -2, 2, dtype),
                       RandomTensor(shape, 2, -bound, bound, dtype)}};
  }
};

TEST_P(SlopeTest, AgreesWithTheReference) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{17}, Shape{3, 691}}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Of(shape, DType::kFloat32)));
  }
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Of({53}, dtype), ToleranceOf(dtype)));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(Of({257}, DType::kFloat32, 12)));
}

INSTANTIATE_TEST_SUITE_P(Operators, SlopeTest,
                         ::testing::Values("ReluGrad", "SigmoidGrad", "TanhGrad", "ErfGrad",
                                           "GeluGrad", "TanhGeluGrad", "SwishGrad"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SlopeOnGpu, HugeArgumentsAreFinite) {
  const Tensor x = Tensor::Of<float>({4}, std::vector<float>{1e30f, -1e30f, 60, -60});
  const Tensor dy = Tensor::Of<float>({4}, std::vector<float>{2, 2, 2, 2});
  const Tensor expected = Tensor::Of<float>({4}, std::vector<float>{2, 0, 2, 0});
  for (const char* op : {"GeluGrad", "TanhGeluGrad", "SwishGrad"}) {
    const auto dx = RunOnEmulatedGpu({.domain = "ai.weft", .op = op, .inputs = {dy, x}});
    ASSERT_TRUE(dx.ok()) << dx.status();
    EXPECT_TRUE(TensorsNear(dx->at(0), expected)) << op;
  }
}

TEST(BinaryOnGpu, WholeNumbers) {
  for (const DType dtype : kWholeTypes) {
    for (const char* op :
         {"Add", "Sub", "Mul", "Div", "Mod", "Equal", "Less", "Greater", "LessOrEqual",
          "GreaterOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "PRelu", "Max", "Min"}) {
      const double low = std::string(op) == "PRelu" && IsInteger(dtype) ? 0 : 1;
      EXPECT_TRUE(BinaryBitsOfCpu({.op = op,
                                   .inputs = {RandomTensor({3, 16}, 1, low, 120, dtype),
                                              RandomTensor({16}, 2, 1, 120, dtype)}}))
          << op << " " << DTypeName(dtype);
    }
    // The ends of the type wrap around.
    const Tensor a =
        Cast(Tensor::Of<double>({5}, std::vector<double>{-1e30, 1e30, -7, 7, -1e30}), dtype);
    const Tensor b = Cast(Tensor::Of<double>({5}, std::vector<double>{1, 1e30, 2, 3, 5}), dtype);
    const Tensor minus =
        Cast(Tensor::Of<double>({5}, std::vector<double>{-1, -1, -2, -3, 7}), dtype);
    for (const char* op : {"Add", "Sub", "Mul", "Div", "Mod"}) {
      EXPECT_TRUE(BinaryBitsOfCpu({.op = op, .inputs = {a, b}})) << op << DTypeName(dtype);
      const std::string name = DTypeName(dtype).data();
      if (name.front() == 'u') continue;
      EXPECT_TRUE(BinaryBitsOfCpu({.op = op, .inputs = {a, minus}})) << op << DTypeName(dtype);
    }
    for (const char* direction : {"LEFT", "RIGHT"}) {
      EXPECT_TRUE(BinaryBitsOfCpu({.op = "BitShift",
                                   .attributes = {{"direction", std::string(direction)}},
                                   .inputs = {a, b}}));
    }
  }
}

TEST(BinaryOnGpu, FloorAndSignsOfMod) {
  const Tensor a = Tensor::Of<float>({6}, std::vector<float>{5.3f, -5.3f, 5.3f, -5.3f, 6, -6});
  const Tensor b = Tensor::Of<float>({6}, std::vector<float>{3, 3, -3, -3, 3, 3});
  for (const int64_t fmod : {0, 1}) {
    EXPECT_TRUE(BinaryBitsOfCpu({.op = "Mod", .attributes = {{"fmod", fmod}}, .inputs = {a, b}}));
  }
}

TEST(BinaryOnGpu, DivisorsThatAreZeroAreFaults) {
  std::vector<int32_t> divisors(300, 3);
  divisors[257] = 0;
  const Tensor a = RandomTensor({2, 300}, 1, 0, 9, DType::kInt32);
  const Tensor b = Tensor::Of<int32_t>({300}, divisors);
  for (const char* op : {"Div", "Mod"}) {
    EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
        {.op = op, .inputs = {a, b}}, absl::StatusCode::kInvalidArgument, {op, "divisor", "257"}));
  }
}

TEST(BinaryOnGpu, TruthValues) {
  for (const char* op : {"And", "Or", "Xor", "Equal"}) {
    EXPECT_TRUE(BinaryBitsOfCpu({.op = op,
                                 .inputs = {RandomTensor({7, 48}, 1, 0, 1, DType::kBool),
                                            RandomTensor({48}, 2, 0, 1, DType::kBool)}}));
  }
}

TEST(BinaryOnGpu, PReluOfBothSigns) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    EXPECT_TRUE(CheckOnEmulatedGpu({.op = "PRelu",
                                    .inputs = {RandomTensor({2, 3, 8}, 1, -2, 2, dtype),
                                               RandomTensor({3, 1}, 2, -2, 2, dtype)}},
                                   ToleranceOf(dtype)));
  }
}

TEST(PowOnGpu, EveryPairOfTypes) {
  for (const DType base : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16,
                           DType::kInt32, DType::kInt64}) {
    const Tensor x = Cast(Tensor::Of<double>({6}, std::vector<double>{2, -3, 1, -1, 5, 0}), base);
    for (const DType exponent :
         {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16, DType::kInt8,
          DType::kInt16, DType::kInt32, DType::kInt64, DType::kUint8, DType::kUint16,
          DType::kUint32, DType::kUint64}) {
      const Tensor y =
          Cast(Tensor::Of<double>({6}, std::vector<double>{3, 2, 200, 101, 1, 4}), exponent);
      const auto expected = RunOp({.op = "Pow", .inputs = {x, y}});
      const auto actual = RunOnEmulatedGpu({.op = "Pow", .inputs = {x, y}});
      ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
      EXPECT_TRUE(TensorsNear(actual->at(0), expected->at(0)))
          << DTypeName(base) << " " << DTypeName(exponent);
    }
    const Tensor minus =
        Cast(Tensor::Of<double>({6}, std::vector<double>{-1, -2, -3, -3, -1, 0}), DType::kInt8);
    EXPECT_TRUE(BinaryBitsOfCpu(
        {.op = "Pow", .inputs = {Cast(x, IsInteger(base) ? base : DType::kInt32), minus}}));
  }
}

TEST(PowOnGpu, SquaresByAScalar) {
  EXPECT_TRUE(CheckOnEmulatedGpu(
      {.op = "Pow", .inputs = {RandomTensor({1031}, 1, -9, 9), Tensor::Scalar<float>(2)}}));
}

// Tensors too large for int32 indices are computed in pieces: so are these.
TEST(BinaryOnGpu, Pieces) {
  const int64_t limit = cuda::PieceLimitOfFactories();
  cuda::SetPieceLimitForTesting(100);
  for (const ShapePair& shapes : BroadcastPairs()) {
    const Tensor a = RandomTensor(shapes.first, 1);
    const Tensor b = RandomTensor(shapes.second, 2);
    for (const char* op : {"Sub", "Greater", "Max"}) {
      EXPECT_TRUE(CheckOnEmulatedGpu({.op = op, .inputs = {a, b}}));
    }
    EXPECT_TRUE(CheckOnEmulatedGpu(
        {.op = "Where", .inputs = {RandomTensor(shapes.second, 3, 0, 1, DType::kBool), a, b}}));
  }
  std::vector<int32_t> divisors(300, 3);
  divisors[257] = 0;
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu({.op = "Div",
                                        .inputs = {RandomTensor({300}, 1, 0, 9, DType::kInt32),
                                                   Tensor::Of<int32_t>({300}, divisors)}},
                                       absl::StatusCode::kInvalidArgument, {"257"}));
  cuda::SetPieceLimitForTesting(limit);
}

// ---- Where.

TEST(WhereOnGpu, PicksByTheCondition) {
  struct Shapes {
    Shape condition;
    Shape x;
    Shape y;
  };
  const std::vector<Shapes> cases = {{{7, 16}, {7, 16}, {7, 16}}, {{7, 16}, {16}, {}},
                                     {{5}, {7, 1}, {}},           {{3, 1, 1}, {2, 1}, {4}},
                                     {{0, 3}, {3}, {}},           {{}, {1031}, {1031}}};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBfloat16, DType::kInt8,
                            DType::kBool, DType::kInt64}) {
    for (const Shapes& c : cases) {
      EXPECT_TRUE(CheckOnEmulatedGpu(
          {.op = "Where",
           .inputs = {RandomTensor(c.condition, 1, 0, 1, DType::kBool),
                      RandomTensor(c.x, 2, -9, 9, dtype), RandomTensor(c.y, 3, -9, 9, dtype)}}));
    }
  }
}

// ---- Folds.

TEST(VariadicOnGpu, ManyOperands) {
  for (const char* op : {"Sum", "Mean", "Max", "Min"}) {
    OpCase one{.op = op, .inputs = {RandomTensor({41}, 1)}};
    EXPECT_TRUE(CheckOnEmulatedGpu(one)) << op;
    OpCase many{.op = op, .inputs = {}};
    for (uint64_t k = 0; k < 9; ++k) {
      many.inputs.push_back(RandomTensor(k % 3 == 0   ? Shape{5, 12}
                                         : k % 3 == 1 ? Shape{12}
                                                      : Shape{5, 1},
                                         k + 1));
    }
    EXPECT_TRUE(CheckOnEmulatedGpu(many)) << op;
    OpCase too_many{.op = op, .inputs = {}};
    for (uint64_t k = 0; k < 65; ++k) too_many.inputs.push_back(RandomTensor({3}, k + 1));
    EXPECT_TRUE(ExpectErrorOnEmulatedGpu(too_many, absl::StatusCode::kUnimplemented, {"65", "64"}));
  }
}

TEST(VariadicOnGpu, NanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor a = Tensor::Of<float>({3}, std::vector<float>{nan, 1, 2});
  const Tensor b = Tensor::Of<float>({3}, std::vector<float>{1, nan, 3});
  for (const char* op : {"Max", "Min"}) {
    EXPECT_TRUE(BinaryBitsOfCpu({.op = op, .inputs = {a, b}}));
  }
}

TEST(VariadicOnGpu, WholeNumbers) {
  for (const DType dtype : kWholeTypes) {
    for (const char* op : {"Max", "Min"}) {
      EXPECT_TRUE(BinaryBitsOfCpu({.op = op,
                                   .inputs = {RandomTensor({3, 32}, 1, 0, 120, dtype),
                                              RandomTensor({32}, 2, 0, 120, dtype)}}));
    }
  }
}

// ---- DequantizeBlocks.

OpCase BlocksCase(int64_t rows, int64_t columns, int64_t size, int64_t bits, DType dtype) {
  const int64_t blocks = (columns + size - 1) / size;
  return {.domain = "ai.weft",
          .op = "DequantizeBlocks",
          .attributes = {{"N", rows}, {"K", columns}, {"bits", bits}, {"block_size", size}},
          .inputs = {RandomTensor({rows, blocks, size * bits / 8}, 1, 0, 255, DType::kUint8),
                     RandomTensor({rows * blocks}, 2, 0.5, 2, dtype)}};
}

TEST(DequantizeBlocksOnGpu, GivesTheBitsOfTheCpu) {
  for (const int64_t bits : {2, 4, 8}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
      for (const int64_t columns : {64, 37}) {
        const OpCase plain = BlocksCase(5, columns, 16, bits, dtype);
        EXPECT_TRUE(BinaryBitsOfCpu(plain));
        const int64_t blocks = (columns + 15) / 16;
        OpCase packed = plain;
        packed.inputs.push_back(
            RandomTensor({5 * ((blocks * bits + 7) / 8)}, 3, 0, 255, DType::kUint8));
        EXPECT_TRUE(BinaryBitsOfCpu(packed));
        OpCase grouped = plain;
        grouped.inputs.push_back(RandomTensor({5 * blocks}, 3, 0, 9, dtype));
        grouped.inputs.push_back(
            RandomTensor({columns}, 4, 0, static_cast<double>(blocks), DType::kInt32));
        EXPECT_TRUE(BinaryBitsOfCpu(grouped));
      }
    }
  }
}

TEST(DequantizeBlocksOnGpu, WrongGroupsAreFaults) {
  OpCase wrong = BlocksCase(3, 16, 8, 4, DType::kFloat32);
  std::vector<int32_t> groups(16, 1);
  groups[11] = 2;
  wrong.inputs.push_back(Tensor());
  wrong.inputs.push_back(Tensor::Of<int32_t>({16}, groups));
  EXPECT_TRUE(
      ExpectErrorOnEmulatedGpu(wrong, absl::StatusCode::kInvalidArgument, {"g_idx", "2", "11"}));
}

}  // namespace
}  // namespace weft::testing
