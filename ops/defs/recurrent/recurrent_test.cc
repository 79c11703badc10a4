#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

struct LstmSizes {
  int64_t time = 5;
  int64_t batch = 3;
  int64_t input = 4;
  int64_t hidden = 7;
};

// All inputs and outputs present.
OpCase FullCase(const std::string& direction, int64_t layout, LstmSizes n = {}) {
  const int64_t d = direction == "bidirectional" ? 2 : 1;
  const Shape x = layout == 1 ? Shape{n.batch, n.time, n.input} : Shape{n.time, n.batch, n.input};
  const Shape state = layout == 1 ? Shape{n.batch, d, n.hidden} : Shape{d, n.batch, n.hidden};
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < n.batch; ++b)
    lengths.push_back(static_cast<int32_t>(std::max<int64_t>(n.time - b, 0)));
  return {
      .op = "LSTM",
      .attributes = {{"direction", direction}, {"layout", layout}, {"hidden_size", n.hidden}},
      .inputs = {RandomTensor(x, 1), RandomTensor({d, 4 * n.hidden, n.input}, 2),
                 RandomTensor({d, 4 * n.hidden, n.hidden}, 3), RandomTensor({d, 8 * n.hidden}, 4),
                 Tensor::Of<int32_t>({n.batch}, lengths), RandomTensor(state, 5),
                 RandomTensor(state, 6), RandomTensor({d, 3 * n.hidden}, 7)},
      .outputs = {true, true, true}};
}

// X, W and R only.
OpCase PlainCase(LstmSizes n = {}) {
  OpCase lstm = FullCase("forward", 0, n);
  lstm.inputs.resize(3);
  return lstm;
}

const Tolerance kTolerance{.of_magnitude = 5e-6};

TEST(LstmTest, OneStepByHand) {
  // Each gate sees x alone: input, output, forget, candidate.
  const OpCase lstm{
      .op = "LSTM",
      .attributes = {{"hidden_size", int64_t{1}}},
      .inputs = {Tensor::Of<float>({1, 1, 1}, {1}), Tensor::Of<float>({1, 4, 1}, {0, 0, 0, 1}),
                 Tensor::Of<float>({1, 4, 1}, {0, 0, 0, 0}), Tensor(), Tensor(), Tensor(),
                 Tensor::Of<float>({1, 1, 1}, {4})},
      .outputs = {true, true, true}};
  const float c = static_cast<float>(0.5 * 4 + 0.5 * std::tanh(1.0));
  const float h = 0.5f * std::tanh(c);
  EXPECT_TRUE(
      ExpectOutputs(lstm, {Tensor::Of<float>({1, 1, 1, 1}, {h}), Tensor::Of<float>({1, 1, 1}, {h}),
                           Tensor::Of<float>({1, 1, 1}, {c})}));
}

TEST(LstmTest, AgreesWithReferenceInAllDirectionsAndLayouts) {
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    for (const int64_t layout : {0, 1}) {
      EXPECT_TRUE(CheckKernelAgainstReference(FullCase(direction, layout), kTolerance));
      EXPECT_TRUE(CheckKernelAgainstReference(
          FullCase(direction, layout, {.time = 3, .batch = 2, .input = 16, .hidden = 32}),
          kTolerance));
    }
  }
}

TEST(LstmTest, AgreesWithReferenceWithoutOptionalOperands) {
  for (const std::vector<bool>& outputs :
       {std::vector<bool>{true}, {false, true}, {false, false, true}}) {
    OpCase lstm = PlainCase();
    lstm.outputs = outputs;
    EXPECT_TRUE(CheckKernelAgainstReference(lstm, kTolerance));
  }
}

TEST(LstmTest, AgreesWithReferenceForOtherCells) {
  OpCase clipped = FullCase("forward", 0);
  clipped.attributes.Set("clip", 0.5f);
  EXPECT_TRUE(CheckKernelAgainstReference(clipped, kTolerance));
  OpCase coupled = FullCase("reverse", 0);
  coupled.attributes.Set("input_forget", int64_t{1});
  EXPECT_TRUE(CheckKernelAgainstReference(coupled, kTolerance));
  OpCase other = FullCase("bidirectional", 1);
  other.attributes.Set("activations",
                       std::vector<std::string>{"HardSigmoid", "Relu", "Softsign", "Sigmoid",
                                                "LeakyRelu", "ScaledTanh"});
  other.attributes.Set("activation_alpha", std::vector<float>{0.3f, 0.1f});
  other.attributes.Set("clip", 2.0f);
  EXPECT_TRUE(CheckKernelAgainstReference(other, kTolerance));
}

TEST(LstmTest, NothingToDoGivesTheStartState) {
  EXPECT_TRUE(CheckKernelAgainstReference(FullCase("forward", 0, {.batch = 0}), kTolerance));
  EXPECT_TRUE(CheckKernelAgainstReference(PlainCase({.time = 0}), kTolerance));
}

TEST(LstmTest, SaysWhatDoesNotFit) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  OpCase shapes = PlainCase();
  shapes.inputs[1] = RandomTensor({1, 28, 5}, 1);
  EXPECT_TRUE(ExpectError(shapes, invalid, {"W has shape [1,28,5]", "[1,28,4]"}));
  OpCase direction = PlainCase();
  direction.attributes.Set("direction", std::string("sideways"));
  EXPECT_TRUE(ExpectError(direction, invalid, {"sideways", "bidirectional"}));
  OpCase activation = PlainCase();
  activation.attributes.Set("activations", std::vector<std::string>{"Tanh"});
  EXPECT_TRUE(ExpectError(activation, invalid, {"activations", "expected 3"}));
  OpCase lengths = FullCase("forward", 0);
  lengths.inputs[4] = Tensor::Of<int32_t>({3}, {5, 6, 5});
  EXPECT_TRUE(ExpectError(lengths, invalid, {"sequence_lens[1] is 6", "5 steps"}));
}

TEST(LstmTest, ShardsBySample) {
  for (const int64_t layout : {0, 1}) {
    EXPECT_TRUE(CheckSharding(FullCase("bidirectional", layout), {.min_splits = 2}));
  }
}

// RNN (one gate) or GRU (three), all inputs and outputs present.
OpCase GatedCase(const std::string& op, int64_t gates, const std::string& direction, int64_t layout,
                 LstmSizes n = {}) {
  const OpCase lstm = FullCase(direction, layout, n);
  const int64_t d = direction == "bidirectional" ? 2 : 1;
  return {.op = op,
          .attributes = lstm.attributes,
          .inputs = {lstm.inputs[0], RandomTensor({d, gates * n.hidden, n.input}, 2),
                     RandomTensor({d, gates * n.hidden, n.hidden}, 3),
                     RandomTensor({d, 2 * gates * n.hidden}, 4), lstm.inputs[4], lstm.inputs[5]},
          .outputs = {true, true}};
}

TEST(GruTest, AgreesWithReferenceInAllDirectionsAndLayouts) {
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    for (const int64_t layout : {0, 1}) {
      EXPECT_TRUE(CheckKernelAgainstReference(GatedCase("RNN", 1, direction, layout), kTolerance));
      for (const int64_t linear : {0, 1}) {
        OpCase gru = GatedCase("GRU", 3, direction, layout);
        gru.attributes.Set("linear_before_reset", linear);
        gru.attributes.Set("clip", 1.5f);
        EXPECT_TRUE(CheckKernelAgainstReference(gru, kTolerance));
        EXPECT_TRUE(CheckKernelAgainstReference(InFloat64(gru), {.of_magnitude = 1e-12}));
        gru.inputs.resize(3);
        EXPECT_TRUE(CheckKernelAgainstReference(gru, kTolerance));
      }
    }
  }
}

TEST(GruTest, TakesHalves) {
  for (OpCase gated : {GatedCase("GRU", 3, "bidirectional", 0), GatedCase("RNN", 1, "forward", 1),
                       FullCase("bidirectional", 1)}) {
    for (Tensor& input : gated.inputs) {
      if (input.dtype() == DType::kFloat32) input = Cast(input, DType::kFloat16);
    }
    EXPECT_TRUE(CheckKernelAgainstReference(gated, {.of_magnitude = 2e-3}));
  }
}

TEST(LstmTest, AgreesWithReferenceInDouble) {
  EXPECT_TRUE(CheckKernelAgainstReference(InFloat64(FullCase("bidirectional", 0)),
                                          {.of_magnitude = 1e-12}));
}

// ---- Gradients.

constexpr LstmSizes kSmall{.time = 3, .batch = 2, .input = 3, .hidden = 4};
// A small step, so that no argument lies near a kink of a clip.
const GradientCheckOptions kSmooth{.inputs = {}, .step = 1e-4};

TEST(LstmGradientTest, IsTheDerivativeInAllDirectionsAndLayouts) {
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    for (const int64_t layout : {0, 1}) {
      EXPECT_TRUE(CheckGradient(FullCase(direction, layout, kSmall), kSmooth));
    }
  }
}

TEST(LstmGradientTest, IsTheDerivativeWithoutOptionalOperands) {
  for (const std::vector<bool>& outputs :
       {std::vector<bool>{true}, {false, true}, {false, false, true}, {true, true, true}}) {
    OpCase lstm = PlainCase(kSmall);
    lstm.outputs = outputs;
    EXPECT_TRUE(CheckGradient(lstm, kSmooth));
  }
}

TEST(LstmGradientTest, IsTheDerivativeForOtherCells) {
  OpCase clipped = FullCase("forward", 0, kSmall);
  clipped.attributes.Set("clip", 0.5f);
  EXPECT_TRUE(CheckGradient(clipped, kSmooth));
  OpCase coupled = FullCase("reverse", 0, kSmall);
  coupled.attributes.Set("input_forget", int64_t{1});
  EXPECT_TRUE(CheckGradient(coupled, kSmooth));
  OpCase other = FullCase("bidirectional", 1, kSmall);
  other.attributes.Set("activations",
                       std::vector<std::string>{"HardSigmoid", "LeakyRelu", "Softsign", "Softplus",
                                                "Affine", "ScaledTanh"});
  other.attributes.Set("activation_alpha", std::vector<float>{0.3f, 0.1f, 0.7f, 1.2f});
  other.attributes.Set("activation_beta", std::vector<float>{0.4f, 0.1f, 0.8f});
  other.attributes.Set("clip", 2.0f);
  EXPECT_TRUE(CheckGradient(other, kSmooth));
}

// The vectors of a hidden size that no vector width divides, and threads.
TEST(LstmGradientTest, AgreesWithReferenceAtLargerSizes) {
  OpCase lstm = FullCase("bidirectional", 0, {.time = 4, .batch = 5, .input = 6, .hidden = 19});
  GradientCheckOptions options = kSmooth;
  options.inputs = {5};
  EXPECT_TRUE(CheckGradient(lstm, options));
}

TEST(LstmGradientTest, OfNothingIsNothing) {
  EXPECT_TRUE(CheckGradient(FullCase("forward", 0, {.batch = 0, .hidden = 2}), kSmooth));
  EXPECT_TRUE(
      CheckGradient(FullCase("bidirectional", 1, {.time = 0, .batch = 1, .hidden = 2}), kSmooth));
}

TEST(GruGradientTest, IsTheDerivativeInAllDirectionsAndLayouts) {
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    for (const int64_t layout : {0, 1}) {
      EXPECT_TRUE(CheckGradient(GatedCase("RNN", 1, direction, layout, kSmall), kSmooth));
      for (const int64_t linear : {0, 1}) {
        OpCase gru = GatedCase("GRU", 3, direction, layout, kSmall);
        gru.attributes.Set("linear_before_reset", linear);
        EXPECT_TRUE(CheckGradient(gru, kSmooth));
      }
    }
  }
}

TEST(GruGradientTest, IsTheDerivativeForOtherCells) {
  for (const int64_t linear : {0, 1}) {
    OpCase gru = GatedCase("GRU", 3, "bidirectional", 0, kSmall);
    gru.attributes.Set("linear_before_reset", linear);
    gru.attributes.Set("clip", 0.8f);
    gru.attributes.Set("activations",
                       std::vector<std::string>{"Softsign", "Softplus", "Sigmoid", "Relu"});
    EXPECT_TRUE(CheckGradient(gru, kSmooth));
    gru = GatedCase("GRU", 3, "forward", 0, kSmall);
    gru.attributes.Set("linear_before_reset", linear);
    gru.inputs.resize(3);
    gru.outputs = {false, true};
    EXPECT_TRUE(CheckGradient(gru, kSmooth));
  }
  OpCase rnn = GatedCase("RNN", 1, "reverse", 0, kSmall);
  rnn.attributes.Set("activations", std::vector<std::string>{"Relu"});
  EXPECT_TRUE(CheckGradient(rnn, kSmooth));
}

}  // namespace
}  // namespace weft::testing
