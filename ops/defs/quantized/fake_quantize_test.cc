// Rounding for quantization-aware training: held to QuantizeLinear and DequantizeLinear bit for
// bit, and to the definitions in double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/gradient_rule.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Floats32 = std::vector<float>;

Tensor Vector(const Floats32& values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

Floats32 ElementsOf(const Tensor& tensor) {
  const auto data = tensor.data<float>();
  return {data.begin(), data.end()};
}

Attributes To(DType codes) { return {{"to", static_cast<int64_t>(codes)}}; }

std::vector<Tensor> Results(const OpCase& op_case) {
  auto result = RunOp(op_case);
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return {Tensor(), Tensor(), Tensor()};
  return *std::move(result);
}

// What the two standard operators make of x.
Tensor RoundTrip(const Tensor& x, const Tensor& scale, const Tensor& zero,
                 const Attributes& layout) {
  const Tensor codes =
      Results({.op = "QuantizeLinear", .attributes = layout, .inputs = {x, scale, zero}})[0];
  return Results(
      {.op = "DequantizeLinear", .attributes = layout, .inputs = {codes, scale, zero}})[0];
}

// ---- Weights.

struct WeightCase {
  Shape shape;
  std::optional<int64_t> axis;
  int64_t block;
  Shape scale;
};

const std::vector<WeightCase>& WeightCases() {
  static const auto& cases = *new std::vector<WeightCase>{
      {{7, 13}, std::nullopt, 0, {}}, {{7, 13}, 0, 0, {7}},
      {{7, 13}, 1, 0, {13}},          {{5, 3, 3, 2}, 0, 0, {5}},
      {{5, 3, 3, 2}, -3, 0, {3}},     {{8, 5}, 0, 4, {2, 5}},
      {{5, 9}, 1, 4, {5, 3}},         {{3, 7, 2, 2}, 1, 3, {3, 3, 2, 2}},
      {{1, 70}, 1, 32, {1, 3}}};
  return cases;
}

// The index of the scale of element i.
int64_t ScaleIndex(const WeightCase& c, int64_t i) {
  if (!c.axis.has_value()) return 0;
  const int axis = static_cast<int>(*c.axis < 0 ? *c.axis + c.shape.rank() : *c.axis);
  const int64_t inner = c.shape.ProductOf(axis + 1, c.shape.rank());
  const int64_t size = c.shape.dim(axis);
  const int64_t d = i / inner % size;
  if (c.block == 0) return d;
  const int64_t blocks = (size + c.block - 1) / c.block;
  return (i / inner / size * blocks + d / c.block) * inner + i % inner;
}

struct CodeLimit {
  DType codes;
  double limit;
};
constexpr CodeLimit kWeightCodes[] = {
    {DType::kInt8, 127}, {DType::kInt4, 7}, {DType::kFloat8E4M3Fn, 448}};

TEST(FakeQuantizeWeight, IsWhatTheStandardOperatorsMakeOfTheLargestMagnitudes) {
  for (const WeightCase& c : WeightCases()) {
    for (const auto& [codes, limit] : kWeightCodes) {
      SCOPED_TRACE(c.shape.ToString());
      const Tensor w = RandomTensor(c.shape, 5, -3, 2);
      Attributes layout;
      if (c.axis.has_value()) layout.Set("axis", *c.axis);
      if (c.block > 0) layout.Set("block_size", c.block);
      Attributes attributes = layout;
      attributes.Set("to", static_cast<int64_t>(codes));
      const OpCase op_case{.domain = "ai.weft",
                           .op = "FakeQuantizeWeight",
                           .attributes = attributes,
                           .inputs = {w},
                           .outputs = {true, true}};
      const std::vector<Tensor> fake = Results(op_case);

      Floats32 largest(static_cast<size_t>(c.scale.num_elements()));
      for (int64_t i = 0; i < w.num_elements(); ++i) {
        float& own = largest[static_cast<size_t>(ScaleIndex(c, i))];
        own = std::max(own, std::fabs(w.data<float>()[i]));
      }
      for (float& scale : largest) scale /= static_cast<float>(limit);
      ASSERT_EQ(fake[1].shape(), c.scale);
      EXPECT_EQ(ElementsOf(fake[1]), largest);

      const Tensor zero = Tensor::Zeros(codes, c.scale).value();
      EXPECT_TRUE(BitwiseEqual(fake[0], RoundTrip(w, fake[1], zero, layout)));
      EXPECT_TRUE(SameBitsOnTwoThreads(op_case));
      OpCase alone = op_case;
      alone.outputs = {true};
      EXPECT_TRUE(BitwiseEqual(Results(alone)[0], fake[0]));
    }
  }
}

TEST(FakeQuantizeWeight, RoundsHalvesToEven) {
  const Tensor w = Vector({127, 0.5f, 1.5f, -2.5f, -0.5f, 126.5f});
  const Tensor y = Results({.domain = "ai.weft",
                            .op = "FakeQuantizeWeight",
                            .attributes = To(DType::kInt8),
                            .inputs = {w}})[0];
  EXPECT_EQ(ElementsOf(y), (Floats32{127, 0, 2, -2, 0, 126}));
}

TEST(FakeQuantizeWeight, OfZerosIsZerosWithAScaleOfOne) {
  const auto y = Results({.domain = "ai.weft",
                          .op = "FakeQuantizeWeight",
                          .attributes = To(DType::kInt8),
                          .inputs = {Vector({0, 0, 1e-44f})},
                          .outputs = {true, true}});
  EXPECT_EQ(ElementsOf(y[0]), (Floats32{0, 0, 0}));
  EXPECT_EQ(ElementsOf(y[1]), (Floats32{1}));
}

// Small numbers round to a zero of their sign, as float8 has two of them.
TEST(FakeQuantizeWeight, RoundsToTheZerosOfFloat8) {
  const Tensor w = Vector({448, -1e-4f, 1e-4f, -0.0f, 0.0f, -0x1.8p-10f});
  const auto y = Results({.domain = "ai.weft",
                          .op = "FakeQuantizeWeight",
                          .attributes = To(DType::kFloat8E4M3Fn),
                          .inputs = {w},
                          .outputs = {true, true}});
  EXPECT_EQ(ElementsOf(y[1]), (Floats32{1}));
  const Tensor zero = Tensor::Zeros(DType::kFloat8E4M3Fn, Shape{}).value();
  EXPECT_TRUE(BitwiseEqual(y[0], RoundTrip(w, y[1], zero, {})));
  EXPECT_TRUE(std::signbit(y[0].data<float>()[1]));
  EXPECT_EQ(y[0].data<float>()[5], -0x1p-9f);
}

TEST(FakeQuantizeWeight, PassesGradients) {
  const OpCase op_case{.domain = "ai.weft",
                       .op = "FakeQuantizeWeight",
                       .attributes = To(DType::kInt4),
                       .inputs = {RandomTensor({4, 5}, 1)}};
  const auto built = BuildGradientGraph(op_case, {0});
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->input_gradients[0], built->output_gradients[0]);
}

TEST(FakeQuantizeWeight, RefusesWhatItCannotMake) {
  const auto of = [](Attributes attributes) {
    return OpCase{.domain = "ai.weft",
                  .op = "FakeQuantizeWeight",
                  .attributes = std::move(attributes),
                  .inputs = {RandomTensor({4, 5}, 1)}};
  };
  EXPECT_TRUE(ExpectError(of(To(DType::kUint8)), absl::StatusCode::kInvalidArgument,
                          {"attribute to is 2", "cannot make"}));
  Attributes blocked = To(DType::kInt4);
  blocked.Set("block_size", int64_t{2});
  EXPECT_TRUE(
      ExpectError(of(blocked), absl::StatusCode::kInvalidArgument, {"block_size needs an axis"}));
  Attributes beyond = To(DType::kInt4);
  beyond.Set("axis", int64_t{2});
  EXPECT_TRUE(ExpectError(of(beyond), absl::StatusCode::kInvalidArgument, {"2"}));
}

// ---- Activations.

// Averages with the weight 0.5: the range is [-1, 3].
Tensor SomeRange() { return Vector({-0.5f, 1.5f, 0.5f}); }

TEST(FakeQuantize, IsWhatTheStandardOperatorsMakeOfTheRange) {
  const Tensor x = RandomTensor({41, 53}, 3, -2, 5);
  const OpCase op_case{.domain = "ai.weft",
                       .op = "FakeQuantize",
                       .attributes = To(DType::kUint8),
                       .inputs = {x, SomeRange()},
                       .outputs = {true, true, true}};
  const auto y = Results(op_case);
  EXPECT_EQ(ElementsOf(y[1]), (Floats32{4.0f / 255}));
  EXPECT_EQ(ElementsOf(y[2]), (Floats32{64}));  // 63.75
  const Tensor zero = Tensor::Scalar<uint8_t>(64);
  EXPECT_TRUE(BitwiseEqual(y[0], RoundTrip(x, y[1], zero, {})));
  EXPECT_TRUE(SameBitsOnTwoThreads(op_case));
  // Zero is a number of its own.
  const Floats32 values = ElementsOf(Results({.domain = "ai.weft",
                                              .op = "FakeQuantize",
                                              .attributes = To(DType::kUint8),
                                              .inputs = {Vector({0, -9, 9}), SomeRange()}})[0]);
  EXPECT_EQ(values, (Floats32{0, -64 * (4.0f / 255), 191 * (4.0f / 255)}));
}

// Every float8, what lies between, and what lies beyond.
TEST(FakeQuantize, RoundsToFloat8AsTheStandardOperatorsDo) {
  Floats32 values;
  for (int code = 0; code < 126; ++code) {
    const Tensor codes =
        Results({.op = "BitCast",
                 .attributes = To(DType::kFloat8E4M3Fn),
                 .inputs = {Tensor::Of<uint8_t>(
                     {2}, {static_cast<uint8_t>(code), static_cast<uint8_t>(code + 1)})}})[0];
    const Floats32 both = ElementsOf(Cast(codes, DType::kFloat32));
    const float middle = (both[0] + both[1]) / 2;
    values.insert(values.end(), {both[0], middle, std::nextafter(middle, 0.0f),
                                 std::nextafter(middle, 1e9f), -both[1], -middle});
  }
  values.insert(values.end(), {448, 460, 464, 470, 1e9f, -448, -500, -1e30f, 0, -0.0f});
  const Tensor x = Vector(values);
  const Tensor range = Vector({-448, 100, 1});  // a scale of 1
  const auto y = Results({.domain = "ai.weft",
                          .op = "FakeQuantize",
                          .attributes = To(DType::kFloat8E4M3Fn),
                          .inputs = {x, range},
                          .outputs = {true, true, true}});
  EXPECT_EQ(ElementsOf(y[1]), (Floats32{1}));
  EXPECT_EQ(ElementsOf(y[2]), (Floats32{0}));
  const Tensor zero = Tensor::Zeros(DType::kFloat8E4M3Fn, Shape{}).value();
  EXPECT_EQ(ElementsOf(y[0]), ElementsOf(RoundTrip(x, y[1], zero, {})));
}

TEST(FakeQuantize, WithoutARangeIsTheIdentity) {
  const Tensor x = RandomTensor({3, 5}, 1, -9, 9);
  const auto y = Results({.domain = "ai.weft",
                          .op = "FakeQuantize",
                          .attributes = To(DType::kUint8),
                          .inputs = {x, Vector({0, 0, 0})},
                          .outputs = {true, true}});
  EXPECT_TRUE(BitwiseEqual(y[0], x));
  EXPECT_EQ(ElementsOf(y[1]), (Floats32{0}));
}

TEST(FakeQuantize, GradientsPassInsideTheRangeAlone) {
  const float scale = 4.0f / 255;
  // The codes of the range are those from -64 to 191 away from 0; halves go to the even end.
  const Tensor x = Vector({0, 1, -64 * scale, -64.4f * scale, -64.6f * scale, -9, 191 * scale,
                           191.4f * scale, 191.6f * scale, 1e9f, -1e30f});
  const Tensor dy = Vector({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Tensor dx = Results({.domain = "ai.weft",
                             .op = "FakeQuantizeGrad",
                             .attributes = To(DType::kUint8),
                             .inputs = {dy, x, SomeRange()}})[0];
  EXPECT_EQ(ElementsOf(dx), (Floats32{1, 2, 3, 4, 0, 0, 7, 8, 0, 0, 0}));

  const Tensor float8 = Results(
      {.domain = "ai.weft",
       .op = "FakeQuantizeGrad",
       .attributes = To(DType::kFloat8E4M3Fn),
       .inputs = {Vector({1, 2, 3, 4}), Vector({448, 449, -448, -1e9f}), Vector({-448, 0, 1})}})[0];
  EXPECT_EQ(ElementsOf(float8), (Floats32{1, 0, 3, 0}));

  const Tensor all = Results({.domain = "ai.weft",
                              .op = "FakeQuantizeGrad",
                              .attributes = To(DType::kUint8),
                              .inputs = {dy, x, Vector({0, 0, 0})}})[0];
  EXPECT_TRUE(BitwiseEqual(all, dy));
}

// The quotient of the highest value and its scale was beyond 448 for some.
TEST(FakeQuantize, GradientsPassAtTheEndsOfTheRange) {
  for (int i = 1; i <= 1000; ++i) {
    const auto end = static_cast<float>(i);
    const Tensor dx = Results({.domain = "ai.weft",
                               .op = "FakeQuantizeGrad",
                               .attributes = To(DType::kFloat8E4M3Fn),
                               .inputs = {Vector({1, 2, 3}), Vector({end, -end, 1.001f * end}),
                                          Vector({-end, end, 1})}})[0];
    ASSERT_EQ(ElementsOf(dx), (Floats32{1, 2, 0})) << end;
  }
}

// A code would hide them: the loss would be a number, and no step would be skipped.
TEST(FakeQuantize, WhatIsNotFiniteStays) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x = Vector({std::nanf(""), infinity, -infinity, 1e30f});
  const Tensor dy = Vector({1, 2, 3, 4});
  for (const DType codes : {DType::kUint8, DType::kFloat8E4M3Fn}) {
    const Floats32 y = ElementsOf(Results({.domain = "ai.weft",
                                           .op = "FakeQuantize",
                                           .attributes = To(codes),
                                           .inputs = {x, SomeRange()}})[0]);
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], infinity);
    EXPECT_EQ(y[2], -infinity);
    EXPECT_LT(y[3], 4);
    const Tensor dx = Results({.domain = "ai.weft",
                               .op = "FakeQuantizeGrad",
                               .attributes = To(codes),
                               .inputs = {dy, x, SomeRange()}})[0];
    EXPECT_EQ(ElementsOf(dx), (Floats32{1, 2, 3, 0}));
  }
}

TEST(FakeQuantize, ItsRuleIsThatGradient) {
  const OpCase op_case{.domain = "ai.weft",
                       .op = "FakeQuantize",
                       .attributes = To(DType::kUint8),
                       .inputs = {RandomTensor({4, 5}, 1, -2, 4), SomeRange()}};
  const auto built = BuildGradientGraph(op_case, {0});
  ASSERT_TRUE(built.ok()) << built.status();
  const ValueDef& gradient = built->graph->value(built->input_gradients[0]);
  const Node& node = built->graph->node(gradient.producer);
  EXPECT_EQ(node.op, "FakeQuantizeGrad");
  EXPECT_EQ(node.inputs,
            (std::vector<ValueId>{built->output_gradients[0], built->inputs[0], built->inputs[1]}));
  EXPECT_EQ(node.attributes.Int("to", 0), static_cast<int64_t>(DType::kUint8));
}

TEST(FakeQuantize, RefusesAnotherShapeOfRange) {
  EXPECT_TRUE(ExpectError({.domain = "ai.weft",
                           .op = "FakeQuantize",
                           .attributes = To(DType::kUint8),
                           .inputs = {RandomTensor({4}, 1), Vector({0, 1})}},
                          absl::StatusCode::kInvalidArgument,
                          {"the range has the shape [2]", "expected [3]"}));
}

// ---- Ranges.

TEST(RangeOfBatch, HasZeroInItAndIsInTheRowOfTheMicroBatch) {
  for (const auto& [values, low, high] : std::vector<std::tuple<Floats32, float, float>>{
           {{1, -2, 5}, -2, 5}, {{1, 2}, 0, 2}, {{-3, -1}, -3, 0}, {{}, 0, 0}}) {
    const Tensor y =
        Results({.domain = "ai.weft", .op = "RangeOfBatch", .inputs = {Vector(values)}})[0];
    ASSERT_EQ(y.shape(), (Shape{64, 2}));
    Floats32 expected(128);
    expected[0] = low;
    expected[1] = high;
    EXPECT_EQ(ElementsOf(y), expected);
  }
}

TEST(UpdateRange, AveragesTheLowestAndTheHighestRow) {
  const Tensor rows = Tensor::Of<float>({3, 2}, {-1, 2, -4, 1, 0, 0});
  const Tensor y = Results({.domain = "ai.weft",
                            .op = "UpdateRange",
                            .attributes = {{"decay", 0.75f}},
                            .inputs = {Vector({-8, 4, 0.5f}), rows}})[0];
  EXPECT_EQ(ElementsOf(y),
            (Floats32{0.75f * -8 + 0.25f * -4, 0.75f * 4 + 0.25f * 2, 0.75f * 0.5f + 0.25f}));
}

// A job could not be saved once a range was infinite. A NaN was lost behind the next row, with all
// rows before it.
TEST(UpdateRange, KeepsTheRangeWhereARowIsNotFinite) {
  const Tensor range = Vector({-8, 4, 0.5f});
  for (const float broken : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const int64_t place : {0, 3}) {
      Floats32 rows = {-1, 2, -4, 1, 0, 0};
      rows[static_cast<size_t>(place)] = broken;
      const Tensor y = Results({.domain = "ai.weft",
                                .op = "UpdateRange",
                                .attributes = {{"decay", 0.75f}},
                                .inputs = {range, Tensor::Of<float>({3, 2}, rows)}})[0];
      EXPECT_TRUE(BitwiseEqual(y, range));
    }
  }
}

}  // namespace
}  // namespace weft::testing
