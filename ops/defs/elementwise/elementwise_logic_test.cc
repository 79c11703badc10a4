// Logic, bits, tests, Mod, BitCast, and the variadic ops.
#include <limits>

#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const std::vector<DType> kWhole = {DType::kInt8,  DType::kInt16,  DType::kInt32,  DType::kInt64,
                                   DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64};

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}
Tensor Bools(const std::vector<float>& values) { return Cast(Floats(values), DType::kBool); }

OpCase Two(const char* op, Shape a, Shape b, double low, double high, DType dtype) {
  return {.op = op,
          .inputs = {RandomTensor(std::move(a), 1, low, high, dtype),
                     RandomTensor(std::move(b), 2, low, high, dtype)}};
}

TEST(Logic, AgreesWithTheReference) {
  for (const char* op : {"And", "Or", "Xor"}) {
    EXPECT_TRUE(CheckKernelAgainstReference(Two(op, {7, 5}, {5}, 0, 1, DType::kBool)));
    EXPECT_TRUE(CheckKernelAgainstReference(Two(op, {3, 1}, {2, 1, 4}, 0, 1, DType::kBool)));
    EXPECT_TRUE(CheckSharding(Two(op, {4, 6}, {6}, 0, 1, DType::kBool)));
  }
}

TEST(Bitwise, AgreesWithTheReference) {
  for (const DType dtype : kWhole) {
    for (const char* op : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"}) {
      EXPECT_TRUE(CheckKernelAgainstReference(Two(op, {7, 5}, {7, 1}, 0, 99, dtype)));
    }
  }
  EXPECT_TRUE(CheckKernelAgainstReference(
      {.op = "BitwiseNot", .inputs = {RandomTensor({7, 5}, 1, -99, 99, DType::kInt16)}}));
}

Tensor Int8s(const std::vector<int8_t>& values) {
  return Tensor::Of<int8_t>({static_cast<int64_t>(values.size())}, values);
}

TEST(BitShift, ShiftsInZerosOrTheSign) {
  const auto shift = [](const char* direction, Tensor x, Tensor by) {
    return OpCase{.op = "BitShift",
                  .attributes = {{"direction", std::string(direction)}},
                  .inputs = {std::move(x), std::move(by)}};
  };
  const auto first = [](const OpCase& op_case) { return RunOp(op_case)->at(0); };
  EXPECT_TRUE(BitwiseEqual(first(shift("LEFT", Int8s({1, 65, -1}), Int8s({3, 1, 8}))),
                           Int8s({8, -126, 0})));
  EXPECT_TRUE(BitwiseEqual(first(shift("RIGHT", Int8s({16, -16, -1}), Int8s({2, 2, 99}))),
                           Int8s({4, -4, -1})));
  EXPECT_TRUE(ExpectError(shift("UP", Int8s({1}), Int8s({1})), absl::StatusCode::kInvalidArgument,
                          {"direction is 'UP'", "'LEFT' or 'RIGHT'"}));
}

TEST(IsNan, FindsNanOnly) {
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16, DType::kFloat8E5M2}) {
    EXPECT_TRUE(
        ExpectOutputs({.op = "IsNaN", .inputs = {Cast(Floats({1, kNan, kInfinity, -kNan}), dtype)}},
                      {Bools({0, 1, 0, 1})}));
  }
}

TEST(IsInf, LooksAtTheSignsAsked) {
  const Tensor x = Floats({1, kNan, kInfinity, -kInfinity});
  const auto with = [&](int64_t negative, int64_t positive) {
    return OpCase{.op = "IsInf",
                  .attributes = {{"detect_negative", negative}, {"detect_positive", positive}},
                  .inputs = {x}};
  };
  EXPECT_TRUE(ExpectOutputs(with(1, 1), {Bools({0, 0, 1, 1})}));
  EXPECT_TRUE(ExpectOutputs(with(0, 1), {Bools({0, 0, 1, 0})}));
  EXPECT_TRUE(ExpectOutputs(with(1, 0), {Bools({0, 0, 0, 1})}));
}

TEST(Mod, FollowsTheSignOfTheDivisor) {
  EXPECT_TRUE(ExpectOutputs(
      {.op = "Mod", .inputs = {Int64s({-4, 7, 5, 4, -7, 8}), Int64s({2, -3, 8, -2, 3, 5})}},
      {Int64s({0, -2, 5, 0, 2, 3})}));
}

TEST(Mod, FollowsTheSignOfTheDividendWithFmod) {
  EXPECT_TRUE(
      ExpectOutputs({.op = "Mod",
                     .attributes = {{"fmod", int64_t{1}}},
                     .inputs = {Int64s({-4, 7, 5, 4, -7, 8}), Int64s({2, -3, 8, -2, 3, 5})}},
                    {Int64s({0, 1, 5, 0, -1, 3})}));
}

TEST(Mod, AgreesWithTheReference) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kUint8}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        {.op = "Mod",
         .inputs = {RandomTensor({7, 5}, 1, 0, 99, dtype), RandomTensor({5}, 2, 1, 9, dtype)}},
        {.of_magnitude = 1e-5}));
  }
}

TEST(Mod, RemaindersOfWholeNumbersByZeroAreAnError) {
  EXPECT_TRUE(ExpectError({.op = "Mod", .inputs = {Int64s({1, 2}), Int64s({1, 0})}},
                          absl::StatusCode::kInvalidArgument, {"by zero", "element 1"}));
}

TEST(OrderOrEqual, AgreesWithTheReference) {
  for (const char* op : {"LessOrEqual", "GreaterOrEqual"}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt64, DType::kUint8}) {
      EXPECT_TRUE(CheckKernelAgainstReference(Two(op, {7, 5}, {7, 1}, 0, 3, dtype)));
    }
    EXPECT_TRUE(
        ExpectOutputs({.op = op, .inputs = {Floats({kNan}), Floats({kNan})}}, {Bools({0})}));
  }
}

TEST(BitCast, KeepsTheBits) {
  const Attributes to_int = {{"to", static_cast<int64_t>(DType::kInt32)}};
  EXPECT_TRUE(BitwiseEqual(
      RunOp({.op = "BitCast", .attributes = to_int, .inputs = {Floats({1, -2})}})->at(0),
      Tensor::Of<int32_t>({2}, std::vector<int32_t>{0x3F800000, int32_t(0xC0000000u)})));
  EXPECT_TRUE(ExpectError({.op = "BitCast", .attributes = to_int, .inputs = {Int64s({1})}},
                          absl::StatusCode::kInvalidArgument, {"int64", "int32", "one width"}));
}

// ---- Any number of operands.

class VariadicTest : public ::testing::TestWithParam<const char*> {
 protected:
  OpCase Case(const std::vector<Shape>& shapes, DType dtype = DType::kFloat32) const {
    OpCase op_case{.op = GetParam(), .inputs = {}};
    for (const Shape& shape : shapes) {
      op_case.inputs.push_back(RandomTensor(shape, op_case.inputs.size() + 1, -9, 9, dtype));
    }
    return op_case;
  }
};

TEST_P(VariadicTest, Shapes) {
  for (const Shape& shape : AwkwardShapes()) {
    EXPECT_TRUE(CheckKernelAgainstReference(Case({shape})));
    EXPECT_TRUE(CheckKernelAgainstReference(Case({shape, shape, shape})));
  }
  EXPECT_TRUE(CheckKernelAgainstReference(Case({{3, 1, 5}, {4, 1}, {}, {1, 1, 5}})));
  EXPECT_TRUE(CheckKernelAgainstReference(Case({{5}, {300, 1}, {7, 1, 1}, {7, 300, 5}, {1}})));
  EXPECT_TRUE(CheckKernelAgainstReference(Case({{2, 1}, {0}})));
}

TEST_P(VariadicTest, Types) {
  EXPECT_TRUE(CheckKernelAgainstReference(Case({{7, 5}, {5}}, DType::kFloat64)));
  EXPECT_TRUE(CheckKernelAgainstReference(Case({{7, 5}, {5}, {7, 1}}, DType::kFloat16),
                                          {.of_magnitude = 1e-3}));
  const std::string op = GetParam();
  if (op == "Sum" || op == "Mean") return;
  for (const DType dtype : kWhole) {
    OpCase op_case{
        .op = op,
        .inputs = {RandomTensor({7, 5}, 1, 0, 99, dtype), RandomTensor({5}, 2, 0, 99, dtype)}};
    EXPECT_TRUE(CheckKernelAgainstReference(op_case, {.of_magnitude = 0}));
  }
}

TEST_P(VariadicTest, Gradients) {
  OpCase op_case{
      .op = GetParam(),
      .inputs = {RandomDistinct({3, 4}, 1), RandomDistinct({4}, 2), RandomDistinct({3, 1}, 3)}};
  EXPECT_TRUE(CheckGradient(op_case, {.inputs = {}, .step = 1e-5}));
}

TEST_P(VariadicTest, Shardings) {
  EXPECT_TRUE(CheckSharding(Case({{4, 6}, {6}, {4, 1}}), {.min_splits = 4}));
}

TEST_P(VariadicTest, TwoThreadsGiveTheBitsOfOne) {
  EXPECT_TRUE(SameBitsOnTwoThreads(Case({{521, 257}, {257}, {521, 257}})));
}

INSTANTIATE_TEST_SUITE_P(Ops, VariadicTest, ::testing::Values("Sum", "Mean", "Max", "Min"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Max, NanWins) {
  for (const char* op : {"Max", "Min"}) {
    const auto y = RunOp({.op = op, .inputs = {Floats({kNan, 1}), Floats({1, kNan})}});
    ASSERT_TRUE(y.ok()) << y.status();
    for (const float value : y->at(0).data<float>()) EXPECT_NE(value, value);
  }
}

}  // namespace
}  // namespace weft::testing
