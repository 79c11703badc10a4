#include <cmath>
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

Attributes CastTo(DType dtype) { return {{"to", static_cast<int64_t>(dtype)}}; }

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

// ---- Two operands.

class ArithmeticTest : public ::testing::TestWithParam<const char*> {
 protected:
  OpCase Case(Shape a, Shape b, DType dtype = DType::kFloat32) const {
    return {.op = GetParam(),
            .inputs = {RandomTensor(std::move(a), 1, -9, 9, dtype), Divisor(std::move(b), dtype)}};
  }

  // Away from zero, so that Div is as well-conditioned as the others.
  static Tensor Divisor(Shape shape, DType dtype) {
    if (IsFloatingPoint(dtype)) return Cast(RandomAwayFromZero(std::move(shape), 2, 0.3), dtype);
    return RandomTensor(std::move(shape), 2, 1, 9, dtype);
  }
};

TEST_P(ArithmeticTest, EqualShapes) {
  for (const Shape& shape : AwkwardShapes()) {
    EXPECT_TRUE(CheckKernelAgainstReference(Case(shape, shape)));
  }
}

TEST_P(ArithmeticTest, Broadcasting) {
  const std::vector<std::pair<Shape, Shape>> pairs = {{{13, 17}, {}},
                                                      {{}, {13, 17}},
                                                      {{13, 17}, {17}},
                                                      {{17}, {13, 17}},
                                                      {{13, 17}, {13, 1}},
                                                      {{2, 3, 5, 7}, {3, 1, 1}},
                                                      {{2, 1, 5}, {3, 1}},
                                                      {{1, 1, 4}, {4}},
                                                      {{5, 1, 3}, {1, 7, 1}},
                                                      {{0, 3}, {3}},
                                                      {{0, 3}, {1}},
                                                      {{2, 1}, {0}},
                                                      {{3, 5, 7}, {1, 5, 1}},
                                                      {{1}, {1, 1, 1}},
                                                      {{2, 3, 4, 5}, {2, 1, 4, 1}},
                                                      {{64, 257}, {257}},
                                                      {{2, 2, 1, 2, 2}, {2, 2, 2, 1, 2}}};
  for (const auto& [a, b] : pairs) EXPECT_TRUE(CheckKernelAgainstReference(Case(a, b)));
}

TEST_P(ArithmeticTest, EveryNumericType) {
  for (const DType dtype :
       {DType::kFloat64, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
    EXPECT_TRUE(CheckKernelAgainstReference(Case({3, 5}, {5}, dtype), {.of_magnitude = 1e-15}));
  }
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    EXPECT_TRUE(CheckKernelAgainstReference(Case({3, 5}, {3, 5}, dtype), {.of_magnitude = 4e-3}));
  }
}

TEST_P(ArithmeticTest, UnsignedTypes) {
  for (const DType dtype : {DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64}) {
    const OpCase op_case{
        .op = GetParam(),
        .inputs = {RandomTensor({4, 3}, 1, 9, 15, dtype), RandomTensor({3}, 2, 1, 9, dtype)}};
    EXPECT_TRUE(CheckKernelAgainstReference(op_case, {.of_magnitude = 0}));
  }
}

TEST_P(ArithmeticTest, TwoThreadsGiveTheBitsOfOne) {
  EXPECT_TRUE(SameBitsOnTwoThreads(Case({1031, 521}, {1031, 521})));
  EXPECT_TRUE(SameBitsOnTwoThreads(Case({1031, 521}, {521})));
  EXPECT_TRUE(SameBitsOnTwoThreads(Case({1 << 20}, {})));
}

TEST_P(ArithmeticTest, Gradients) {
  EXPECT_TRUE(CheckGradient(Case({3, 4}, {3, 4})));
  EXPECT_TRUE(CheckGradient(Case({3, 4}, {4})));
  EXPECT_TRUE(CheckGradient(Case({}, {2, 3})));
  EXPECT_TRUE(CheckGradient(Case({2, 3, 4}, {3, 1})));
}

TEST_P(ArithmeticTest, Shardings) {
  EXPECT_TRUE(CheckSharding(Case({6, 5}, {6, 5}), {.min_splits = 4}));
  EXPECT_TRUE(CheckSharding(Case({2, 6, 5}, {6, 1}), {.min_splits = 6}));
  EXPECT_TRUE(CheckSharding(Case({}, {4, 3}), {.min_splits = 4}));
}

INSTANTIATE_TEST_SUITE_P(Ops, ArithmeticTest, ::testing::Values("Add", "Sub", "Mul", "Div"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Arithmetic, ClashingShapesAreNamed) {
  EXPECT_TRUE(ExpectError(
      {.op = "Add", .inputs = {RandomTensor({2, 3}, 1), RandomTensor({2, 4}, 2)}},
      absl::StatusCode::kInvalidArgument, {"node 'node'", "Add", "[2,3]", "[2,4]", "axis 1"}));
}

TEST(Arithmetic, DifferentTypesAreNamed) {
  EXPECT_TRUE(ExpectError(
      {.op = "Mul", .inputs = {RandomTensor({2}, 1), RandomTensor({2}, 2, 0, 5, DType::kInt64)}},
      absl::StatusCode::kInvalidArgument, {"int64", "float32", "add a Cast"}));
}

TEST(Arithmetic, WholeNumbersWrapAround) {
  const Tensor a = Tensor::Of<int8_t>({3}, std::vector<int8_t>{127, -128, 100});
  const Tensor b = Tensor::Of<int8_t>({3}, std::vector<int8_t>{1, -1, 2});
  const auto of = [](std::vector<int8_t> values) { return Tensor::Of<int8_t>({3}, values); };
  EXPECT_TRUE(BitwiseEqual(RunOp({.op = "Add", .inputs = {a, b}})->at(0), of({-128, 127, 102})));
  EXPECT_TRUE(BitwiseEqual(RunOp({.op = "Mul", .inputs = {a, b}})->at(0), of({127, -128, -56})));
  EXPECT_TRUE(BitwiseEqual(RunOp({.op = "Div", .inputs = {a, b}})->at(0), of({127, -128, 50})));
}

TEST(Arithmetic, WholeNumbersDivideTowardsZero) {
  const OpCase op_case{.op = "Div", .inputs = {Int64s({7, -7, 7, -7}), Int64s({2, 2, -2, -2})}};
  EXPECT_TRUE(ExpectOutputs(op_case, {Int64s({3, -3, -3, 3})}));
}

TEST(Arithmetic, DivisionOfWholeNumbersByZeroIsAnError) {
  EXPECT_TRUE(ExpectError({.op = "Div", .inputs = {Int64s({1, 2}), Int64s({1, 0})}},
                          absl::StatusCode::kInvalidArgument, {"by zero", "element 1"}));
}

TEST(Arithmetic, FloatsDivideByZeroToInfinity) {
  EXPECT_TRUE(ExpectOutputs({.op = "Div", .inputs = {Floats({1, -1, 0}), Floats({0, 0, 0})}},
                            {Floats({kInfinity, -kInfinity, kNan})}));
}

// ---- Pow.

TEST(Pow, MixedTypes) {
  const Tensor base = RandomTensor({4, 5}, 1, 1, 5);
  const Tensor exponent = RandomTensor({5}, 2, 0, 4, DType::kInt64);
  EXPECT_TRUE(CheckKernelAgainstReference({.op = "Pow", .inputs = {base, exponent}}));
  EXPECT_TRUE(CheckKernelAgainstReference(
      {.op = "Pow", .inputs = {Cast(base, DType::kInt32), exponent}}, {.of_magnitude = 0}));
  EXPECT_TRUE(CheckKernelAgainstReference(
      {.op = "Pow", .inputs = {Cast(base, DType::kInt64), RandomTensor({5}, 3, 0, 3)}},
      {.absolute = 1}));
}

TEST(Pow, SpecialValues) {
  const OpCase op_case{.op = "Pow",
                       .inputs = {Floats({0, -2, -2, 2, 0, kNan}), Floats({0, 3, 0.5, -1, -1, 0})}};
  EXPECT_TRUE(ExpectOutputs(op_case, {Floats({1, -8, kNan, 0.5, kInfinity, 1})}));
}

TEST(Pow, SquareIsExact) {
  EXPECT_TRUE(CheckKernelAgainstReference(
      {.op = "Pow", .inputs = {RandomTensor({7, 9}, 1), Tensor::Scalar<float>(2)}},
      {.of_magnitude = 0, .of_element = 6.0e-8}));
}

TEST(Pow, Gradients) {
  EXPECT_TRUE(CheckGradient(
      {.op = "Pow", .inputs = {RandomTensor({3, 4}, 1, 0.5, 2), RandomTensor({4}, 2, -2, 2)}}));
  EXPECT_TRUE(CheckGradient(
      {.op = "Pow", .inputs = {RandomAwayFromZero({3, 4}, 1, 0.3), Tensor::Scalar<int64_t>(3)}}));
}

TEST(Pow, Shardings) {
  EXPECT_TRUE(CheckSharding(
      {.op = "Pow", .inputs = {RandomTensor({3, 4}, 1, 0.5, 2), RandomTensor({4}, 2)}}));
}

// ---- One operand.

struct UnaryCase {
  const char* op;
  double low;
  double high;
  double relative;  // accuracy asked of each element
  // Where gradients are checked: away from kinks and poles.
  double gradient_low;
  double gradient_high;
};

void PrintTo(const UnaryCase& unary, std::ostream* out) { *out << unary.op; }

class UnaryTest : public ::testing::TestWithParam<UnaryCase> {
 protected:
  OpCase Case(Tensor x) const { return {.op = GetParam().op, .inputs = {std::move(x)}}; }
};

TEST_P(UnaryTest, AwkwardShapes) {
  for (const Shape& shape : AwkwardShapes()) {
    EXPECT_TRUE(
        CheckKernelAgainstReference(Case(RandomTensor(shape, 1, GetParam().low, GetParam().high)),
                                    {.of_magnitude = 0, .of_element = GetParam().relative}));
  }
}

TEST_P(UnaryTest, IsAccurateOverItsRange) {
  std::vector<float> x(200'001);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(GetParam().low + (GetParam().high - GetParam().low) *
                                                   static_cast<double>(i) / 200'000.0);
  }
  EXPECT_TRUE(CheckKernelAgainstReference(
      Case(Floats(x)), {.of_magnitude = 0, .of_element = GetParam().relative, .absolute = 1e-37}));
}

TEST_P(UnaryTest, OtherFloatTypes) {
  const Tensor x = RandomTensor({5, 7}, 1, GetParam().low, std::min(GetParam().high, 8.0));
  EXPECT_TRUE(CheckKernelAgainstReference(Case(Cast(x, DType::kFloat64)),
                                          {.of_magnitude = 0, .of_element = 1e-15}));
  EXPECT_TRUE(CheckKernelAgainstReference(Case(Cast(x, DType::kBfloat16)), {.of_magnitude = 5e-3}));
  EXPECT_TRUE(CheckKernelAgainstReference(Case(Cast(x, DType::kFloat16)), {.of_magnitude = 1e-3}));
}

TEST_P(UnaryTest, NanStaysNan) {
  for (const int64_t size : {1, 16, 21}) {
    const std::vector<float> x(size, kNan);
    EXPECT_TRUE(ExpectOutputs(Case(Floats(x)), {Floats(x)}));
  }
}

TEST_P(UnaryTest, TwoThreadsGiveTheBitsOfOne) {
  EXPECT_TRUE(
      SameBitsOnTwoThreads(Case(RandomTensor({1031, 521}, 1, GetParam().low, GetParam().high))));
}

TEST_P(UnaryTest, Gradients) {
  if (std::string(GetParam().op) == "Sign") return;
  EXPECT_TRUE(CheckGradient(
      Case(RandomTensor({3, 7}, 1, GetParam().gradient_low, GetParam().gradient_high))));
  EXPECT_TRUE(
      CheckGradient(Case(RandomTensor({}, 2, GetParam().gradient_low, GetParam().gradient_high))));
}

TEST_P(UnaryTest, Shardings) {
  EXPECT_TRUE(CheckSharding(Case(RandomTensor({5, 6}, 1, GetParam().low, GetParam().high)),
                            {.min_splits = 4}));
}

INSTANTIATE_TEST_SUITE_P(
    Ops, UnaryTest,
    ::testing::Values(UnaryCase{"Neg", -9, 9, 0, -1, 1}, UnaryCase{"Exp", -87, 88.7, 2e-7, -1, 1},
                      UnaryCase{"Log", 1e-6, 100, 3e-7, 0.5, 2},
                      UnaryCase{"Sqrt", 0, 100, 1e-7, 0.5, 2},
                      UnaryCase{"Reciprocal", 0.01, 10, 1e-7, 0.5, 2},
                      UnaryCase{"Abs", -9, 9, 0, 0.1, 1}, UnaryCase{"Sign", -9, 9, 0, 0.1, 1},
                      UnaryCase{"Erf", -6, 6, 2e-7, -2, 2}, UnaryCase{"Relu", -9, 9, 0, 0.1, 1},
                      UnaryCase{"Sigmoid", -80, 40, 3e-7, -3, 3},
                      UnaryCase{"Tanh", -12, 12, 5e-7, -2, 2}),
    [](const auto& info) { return std::string(info.param.op); });

TEST(Unary, WholeNumbers) {
  for (const DType dtype : {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
    for (const char* op : {"Neg", "Abs", "Sign", "Relu"}) {
      EXPECT_TRUE(CheckKernelAgainstReference(
          {.op = op, .inputs = {RandomTensor({17}, 3, -5, 5, dtype)}}, {.of_magnitude = 0}));
    }
  }
}

TEST(Unary, TypesWithoutAKernelAreRefused) {
  EXPECT_TRUE(ExpectError({.op = "Exp", .inputs = {Int64s({1})}}, absl::StatusCode::kUnimplemented,
                          {"node 'node'", "Exp", "int64[1]", "cpu:0", "no kernel for int64"}));
}

TEST(Cast, CutsOffTowardsBfloat16WhenAsked) {
  Attributes attributes = CastTo(DType::kBfloat16);
  attributes.Set("round_mode", std::string("down"));
  const Tensor input = Floats({1.0117f, -1.0117f, 1.0f, kInfinity, kNan, 3.3e38f});
  EXPECT_TRUE(ExpectOutputs(
      {.op = "Cast", .attributes = attributes, .inputs = {input}},
      {Cast(Floats({1.0078125f, -1.0078125f, 1.0f, kInfinity, kNan, 3.296e38f}), DType::kBfloat16)},
      {.of_magnitude = 0}));
}

TEST(Exp, Extremes) {
  EXPECT_TRUE(ExpectOutputs(
      {.op = "Exp", .inputs = {Floats({0, 88.8f, 1000, kInfinity, -200, -kInfinity})}},
      {Floats({1, kInfinity, kInfinity, kInfinity, 0, 0})}, {.of_element = 1e-7}));
}

TEST(Log, Extremes) {
  EXPECT_TRUE(ExpectOutputs({.op = "Log", .inputs = {Floats({0, 1, kInfinity, -1})}},
                            {Floats({-kInfinity, 0, kInfinity, kNan})}));
}

TEST(Erf, Extremes) {
  EXPECT_TRUE(ExpectOutputs({.op = "Erf", .inputs = {Floats({0, kInfinity, -kInfinity, 5, -5})}},
                            {Floats({0, 1, -1, 1, -1})}, {.of_element = 1e-7}));
}

TEST(Sigmoid, Extremes) {
  EXPECT_TRUE(ExpectOutputs({.op = "Sigmoid", .inputs = {Floats({0, 500, -500, kInfinity})}},
                            {Floats({0.5, 1, 0, 1})}));
}

TEST(Relu, NegativeInputsHaveNoGradient) {
  EXPECT_TRUE(CheckGradient({.op = "Relu", .inputs = {RandomAwayFromZero({40}, 3)}}));
}

TEST(Abs, GradientOnBothSides) {
  EXPECT_TRUE(CheckGradient({.op = "Abs", .inputs = {RandomAwayFromZero({40}, 3)}}));
}

class BackwardTest : public ::testing::TestWithParam<const char*> {
 protected:
  OpCase Case(Shape shape, DType dtype = DType::kFloat32) const {
    return {.domain = "ai.weft",
            .op = GetParam(),
            .inputs = {RandomTensor(shape, 1, -2, 2, dtype), RandomTensor(shape, 2, -2, 2, dtype)}};
  }
};

TEST_P(BackwardTest, AgreesWithTheReference) {
  for (const Shape& shape : AwkwardShapes()) EXPECT_TRUE(CheckKernelAgainstReference(Case(shape)));
  EXPECT_TRUE(CheckKernelAgainstReference(Case({5, 7}, DType::kFloat64), {.of_magnitude = 1e-15}));
  EXPECT_TRUE(CheckKernelAgainstReference(Case({5, 7}, DType::kBfloat16), {.of_magnitude = 1e-2}));
}

TEST_P(BackwardTest, Shardings) { EXPECT_TRUE(CheckSharding(Case({5, 6}), {.min_splits = 4})); }

INSTANTIATE_TEST_SUITE_P(Ops, BackwardTest,
                         ::testing::Values("ReluGrad", "SigmoidGrad", "TanhGrad", "ErfGrad",
                                           "GeluGrad", "TanhGeluGrad", "SwishGrad"),
                         [](const auto& info) { return std::string(info.param); });

// ---- Comparisons and Where.

TEST(Comparison, AgreesWithTheReference) {
  for (const char* op : {"Equal", "Less", "Greater"}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kInt64,
                              DType::kInt32, DType::kUint8}) {
      const OpCase op_case{
          .op = op,
          .inputs = {RandomTensor({7, 5}, 1, 0, 3, dtype), RandomTensor({7, 1}, 2, 0, 3, dtype)}};
      EXPECT_TRUE(CheckKernelAgainstReference(op_case));
      EXPECT_TRUE(CheckSharding(op_case));
    }
  }
}

TEST(Comparison, NanIsUnequal) {
  EXPECT_TRUE(ExpectOutputs({.op = "Equal", .inputs = {Floats({kNan, 1}), Floats({kNan, 1})}},
                            {Cast(Floats({0, 1}), DType::kBool)}));
}

TEST(Not, TurnsTruthAround) {
  EXPECT_TRUE(ExpectOutputs({.op = "Not", .inputs = {Cast(Floats({0, 1}), DType::kBool)}},
                            {Cast(Floats({1, 0}), DType::kBool)}));
}

OpCase WhereCase(Shape condition, Shape x, Shape y, DType dtype = DType::kFloat32) {
  return {.op = "Where",
          .inputs = {RandomTensor(std::move(condition), 1, 0, 1, DType::kBool),
                     RandomTensor(std::move(x), 2, -9, 9, dtype),
                     RandomTensor(std::move(y), 3, -9, 9, dtype)}};
}

TEST(Where, PicksByTheCondition) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBfloat16, DType::kInt64,
                            DType::kInt8, DType::kBool}) {
    EXPECT_TRUE(CheckKernelAgainstReference(WhereCase({7, 5}, {7, 5}, {7, 5}, dtype)));
  }
  EXPECT_TRUE(CheckKernelAgainstReference(WhereCase({5}, {7, 1}, {})));
  EXPECT_TRUE(CheckKernelAgainstReference(WhereCase({3, 1, 1}, {2, 1}, {4})));
  EXPECT_TRUE(CheckKernelAgainstReference(WhereCase({0, 3}, {3}, {})));
}

TEST(Where, Gradients) {
  EXPECT_TRUE(CheckGradient(WhereCase({4, 3}, {4, 3}, {4, 3})));
  EXPECT_TRUE(CheckGradient(WhereCase({4, 1}, {3}, {})));
}

TEST(Where, Shardings) {
  EXPECT_TRUE(CheckSharding(WhereCase({4, 1}, {3}, {4, 3}), {.min_splits = 4}));
}

// ---- Cast.

TEST(Cast, AgreesWithCastTensorForEveryPair) {
  const std::vector<DType> types = {
      DType::kFloat32, DType::kFloat64,      DType::kFloat16, DType::kBfloat16,
      DType::kInt8,    DType::kInt16,        DType::kInt32,   DType::kInt64,
      DType::kUint8,   DType::kUint16,       DType::kUint32,  DType::kUint64,
      DType::kBool,    DType::kFloat8E4M3Fn, DType::kInt4,    DType::kFloat6E3M2};
  const Tensor values = Tensor::Of<double>(
      {9}, std::vector<double>{0, 1, -1, 2.5, -3.75, 100.3, 70000.7, -70000.2, 1e30});
  for (const DType from : types) {
    const Tensor x = Cast(values, from);
    for (const DType to : types) {
      const OpCase op_case{.op = "Cast", .attributes = CastTo(to), .inputs = {x}};
      const auto outputs = RunOp(op_case);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      EXPECT_TRUE(BitwiseEqual(outputs->at(0), Cast(x, to)))
          << DTypeName(from) << " to " << DTypeName(to) << ": " << outputs->at(0).ToString()
          << " instead of " << Cast(x, to).ToString();
    }
  }
}

TEST(Cast, RoundsDoubleToFloat16Once) {
  // Just above the middle of two float16 values; by way of float32 it would be the middle itself.
  const double x = 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  EXPECT_TRUE(ExpectOutputs(
      {.op = "Cast", .attributes = CastTo(DType::kFloat16), .inputs = {Tensor::Scalar<double>(x)}},
      {Tensor::Scalar<Float16>(ToFloat16(1 + std::ldexp(1.0f, -10)))}, {.of_magnitude = 0}));
}

TEST(Cast, SaturatesOnlyWhenAsked) {
  Attributes attributes = CastTo(DType::kFloat8E4M3Fn);
  const Tensor x = Floats({1e6});
  const auto saturated = RunOp({.op = "Cast", .attributes = attributes, .inputs = {x}});
  attributes.Set("saturate", int64_t{0});
  const auto plain = RunOp({.op = "Cast", .attributes = attributes, .inputs = {x}});
  ASSERT_TRUE(saturated.ok() && plain.ok());
  EXPECT_EQ(ToDoubles(saturated->at(0))->at(0), 448);
  EXPECT_TRUE(std::isnan(ToDoubles(plain->at(0))->at(0)));
}

TEST(Cast, EmptyTensorsAndScalars) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0}}) {
    EXPECT_TRUE(CheckKernelAgainstReference({.op = "Cast",
                                             .attributes = CastTo(DType::kInt32),
                                             .inputs = {RandomTensor(shape, 1, 3, 4)}},
                                            {.absolute = 1}));
  }
}

TEST(Cast, UnknownTargetIsNamed) {
  EXPECT_TRUE(
      ExpectError({.op = "Cast", .attributes = {{"to", int64_t{99}}}, .inputs = {Floats({1})}},
                  absl::StatusCode::kInvalidArgument, {"attribute to is 99"}));
}

TEST(Cast, StringsAreRefused) {
  EXPECT_TRUE(
      ExpectError({.op = "Cast", .attributes = CastTo(DType::kString), .inputs = {Floats({1})}},
                  absl::StatusCode::kUnimplemented, {"string"}));
}

TEST(Cast, GradientsPassBetweenFloats) {
  EXPECT_TRUE(CheckGradient(
      {.op = "Cast", .attributes = CastTo(DType::kFloat64), .inputs = {RandomTensor({3, 2}, 1)}}));
}

TEST(Cast, Shardings) {
  EXPECT_TRUE(CheckSharding({.op = "Cast",
                             .attributes = CastTo(DType::kInt32),
                             .inputs = {RandomTensor({5, 4}, 1, -9, 9)}}));
}

}  // namespace
}  // namespace weft::testing
