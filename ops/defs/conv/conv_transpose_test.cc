// ConvTranspose, and Conv, DeformConv and CausalConvWithState where the fast path does not go.
#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;
const Tolerance kTolerance{.of_magnitude = 5e-6};

OpCase Transposed(Shape x, Shape w, Attributes attributes, bool bias = true) {
  const int64_t outputs = w.dim(1) * attributes.Int("group", 1);
  OpCase conv{.op = "ConvTranspose",
              .attributes = std::move(attributes),
              .inputs = {RandomTensor(std::move(x), 1), RandomTensor(std::move(w), 2)}};
  if (bias) conv.inputs.push_back(RandomTensor({outputs}, 3));
  return conv;
}

std::vector<OpCase> TransposedCases() {
  return {
      Transposed({2, 3, 5}, {3, 4, 3}, {{"strides", Ints{2}}}),
      Transposed({1, 3, 4, 5}, {3, 2, 3, 2}, {}, false),
      Transposed({2, 4, 4, 5}, {4, 3, 3, 3},
                 {{"strides", Ints{2, 3}}, {"pads", Ints{1, 0, 2, 1}}, {"group", int64_t{2}}}),
      Transposed(
          {1, 2, 3, 3}, {2, 2, 3, 3},
          {{"strides", Ints{2, 2}}, {"output_padding", Ints{1, 1}}, {"pads", Ints{1, 1, 1, 1}}}),
      Transposed({1, 2, 3, 3}, {2, 2, 2, 2}, {{"dilations", Ints{2, 3}}}),
      Transposed({1, 2, 3, 2, 3}, {2, 2, 2, 2, 3}, {{"strides", Ints{2, 1, 2}}}),
      Transposed({1, 2, 4, 3}, {2, 2, 3, 3},
                 {{"strides", Ints{2, 2}}, {"auto_pad", std::string("SAME_UPPER")}}),
      Transposed({1, 2, 4, 3}, {2, 2, 3, 3},
                 {{"strides", Ints{2, 2}}, {"auto_pad", std::string("SAME_LOWER")}}),
      Transposed({1, 1, 3, 3}, {1, 2, 3, 3},
                 {{"strides", Ints{3, 2}}, {"output_shape", Ints{10, 8}}}),
      Transposed({0, 2, 3, 3}, {2, 2, 2, 2}, {})};
}

TEST(ConvTransposeTest, AgreesWithReference) {
  for (const OpCase& conv : TransposedCases()) {
    EXPECT_TRUE(CheckKernelAgainstReference(conv, kTolerance)) << conv.ToString();
  }
}

TEST(ConvTransposeTest, AgreesWithReferenceInOtherTypes) {
  for (OpCase conv : TransposedCases()) {
    EXPECT_TRUE(CheckKernelAgainstReference(InFloat64(conv), {.of_magnitude = 1e-12}));
    for (Tensor& input : conv.inputs) input = Cast(input, DType::kFloat16);
    EXPECT_TRUE(CheckKernelAgainstReference(conv, {.of_magnitude = 1e-3})) << conv.ToString();
  }
}

TEST(ConvTransposeTest, Gradient) {
  EXPECT_TRUE(CheckGradient(Transposed({2, 3, 4, 3}, {3, 2, 3, 2}, {{"strides", Ints{2, 1}}})));
  EXPECT_TRUE(CheckGradient(Transposed(
      {1, 2, 3, 3}, {2, 2, 3, 3},
      {{"strides", Ints{2, 2}}, {"output_padding", Ints{1, 1}}, {"pads", Ints{1, 1, 1, 1}}})));
}

TEST(ConvTransposeTest, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(ExpectError(Transposed({1, 3, 4}, {2, 2, 3}, {}), absl::StatusCode::kInvalidArgument,
                          {"number of channels"}));
  EXPECT_TRUE(ExpectError(Transposed({1, 2, 2}, {2, 2, 2}, {{"pads", Ints{3, 3}}}),
                          absl::StatusCode::kInvalidArgument, {"becomes one of -3"}));
}

TEST(ConvTest, TakesOtherTypesAndRanks) {
  OpCase conv{.op = "Conv",
              .attributes = {{"strides", Ints{2, 1}},
                             {"dilations", Ints{1, 2}},
                             {"pads", Ints{1, 2, 0, 1}},
                             {"group", int64_t{2}}},
              .inputs = {RandomTensor({2, 4, 5, 7}, 1), RandomTensor({6, 2, 3, 2}, 2),
                         RandomTensor({6}, 3)}};
  EXPECT_TRUE(CheckKernelAgainstReference(InFloat64(conv), {.of_magnitude = 1e-12}));
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    OpCase half = conv;
    for (Tensor& input : half.inputs) input = Cast(input, dtype);
    EXPECT_TRUE(CheckKernelAgainstReference(half, {.of_magnitude = 8e-3}));
  }
  EXPECT_TRUE(CheckKernelAgainstReference(
      {.op = "Conv",
       .inputs = {RandomTensor({1, 2, 3, 2, 3, 4}, 1), RandomTensor({2, 2, 2, 1, 2, 3}, 2)}},
      kTolerance));
}

TEST(DeformConvTest, WithoutOffsetsIsAConvolution) {
  const Attributes attributes = {{"pads", Ints{1, 0, 1, 2}}, {"group", int64_t{2}}};
  const OpCase conv{.op = "Conv",
                    .attributes = attributes,
                    .inputs = {RandomTensor({2, 4, 5, 4}, 1), RandomTensor({2, 2, 3, 2}, 2),
                               RandomTensor({2}, 3)}};
  const auto expected = RunOp(conv);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const Shape& y = (*expected)[0].shape();
  const Tensor offset = *Tensor::Zeros(DType::kFloat32, {2, 12, y.dim(2), y.dim(3)});
  OpCase deform{.op = "DeformConv",
                .attributes = attributes,
                .inputs = {conv.inputs[0], conv.inputs[1], offset, conv.inputs[2]}};
  const auto actual = RunOp(deform);
  ASSERT_TRUE(actual.ok()) << actual.status();
  EXPECT_TRUE(TensorsNear((*actual)[0], (*expected)[0], kTolerance));
}

TEST(DeformConvTest, SamplesBetweenElements) {
  const OpCase deform{
      .op = "DeformConv",
      .inputs = {Tensor::Of<float>({1, 1, 1, 2}, std::vector<float>{1, 3}),
                 Tensor::Of<float>({1, 1, 1, 1}, std::vector<float>{2}),
                 Tensor::Of<float>({1, 2, 1, 2}, std::vector<float>{0, 0, 0.5f, 0.5f}), Tensor(),
                 Tensor::Of<float>({1, 1, 1, 2}, std::vector<float>{1, 0.5f})}};
  const auto y = RunOp(deform);
  ASSERT_TRUE(y.ok()) << y.status();
  // Halfway between 1 and 3; and halfway between 3 and nothing, of which the mask takes half.
  EXPECT_TRUE(TensorsNear((*y)[0], Tensor::Of<float>({1, 1, 1, 2}, std::vector<float>{4, 1.5f})));
}

TEST(CausalConvTest, GoesOnFromItsState) {
  const Tensor x = RandomTensor({2, 3, 9}, 1);
  const Tensor w = RandomTensor({3, 1, 4}, 2);
  const auto piece = [&](Tensor input, Tensor state) {
    OpCase conv{.op = "CausalConvWithState",
                .attributes = {{"activation", std::string("silu")}},
                .inputs = {std::move(input), w, RandomTensor({3}, 3), std::move(state)},
                .outputs = {true, true}};
    return RunOp(conv).value();
  };
  const auto slice = [&](int64_t begin, int64_t end) {
    return RunOp({.op = "Slice", .inputs = {x, Int64s({begin}), Int64s({end}), Int64s({2})}})
        .value()[0];
  };
  const std::vector<Tensor> whole = piece(x, Tensor());
  const std::vector<Tensor> first = piece(slice(0, 2), Tensor());
  const std::vector<Tensor> second = piece(slice(2, 9), first[1]);
  const auto joined = RunOp(
      {.op = "Concat", .attributes = {{"axis", int64_t{2}}}, .inputs = {first[0], second[0]}});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE(TensorsNear((*joined)[0], whole[0]));
  EXPECT_TRUE(TensorsNear(second[1], whole[1]));
}

}  // namespace
}  // namespace weft::testing
