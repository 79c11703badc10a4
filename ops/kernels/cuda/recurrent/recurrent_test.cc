// RNN, GRU, LSTM and their gradients on the emulated GPU.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/attribute.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// A recurrent layer with all operands and outputs, those for the gradient too.
struct Layer {
  std::string op = "LSTM";
  std::string direction = "forward";
  int64_t layout = 0;
  int64_t time = 4;
  int64_t batch = 3;
  int64_t input = 5;
  int64_t hidden = 7;
  Attributes attributes = {};
  DType dtype = DType::kFloat32;
};

int64_t GatesOf(const Layer& layer) { return layer.op == "LSTM" ? 4 : layer.op == "GRU" ? 3 : 1; }
int64_t DirectionsOf(const Layer& layer) { return layer.direction == "bidirectional" ? 2 : 1; }

Shape StateOf(const Layer& layer) {
  const int64_t d = DirectionsOf(layer);
  return layer.layout == 1 ? Shape{layer.batch, d, layer.hidden}
                           : Shape{d, layer.batch, layer.hidden};
}

Attributes AttributesOf(const Layer& layer) {
  Attributes attributes = layer.attributes;
  attributes.Set("direction", layer.direction);
  attributes.Set("layout", layer.layout);
  return attributes;
}

// All steps, none, one less than all, ...
Tensor LengthsOf(const Layer& layer) {
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < layer.batch; ++b) {
    const int64_t length = b == 1 ? 0 : std::max<int64_t>(layer.time - b / 2, 0);
    lengths.push_back(static_cast<int32_t>(length));
  }
  return Tensor::Of<int32_t>({layer.batch}, lengths);
}

OpCase CaseOf(const Layer& layer) {
  const int64_t d = DirectionsOf(layer);
  const int64_t gates = GatesOf(layer) * layer.hidden;
  // So that what 16 bits round away does not grow from step to step.
  const double size = DTypeBytes(layer.dtype, 1) == 2 ? 0.4 : 1;
  const auto values = [&](const Shape& shape, uint64_t seed) {
    return RandomTensor(shape, seed, -size, size, layer.dtype);
  };
  OpCase op_case;
  op_case.op = layer.op;
  op_case.attributes = AttributesOf(layer);
  op_case.attributes.Set("hidden_size", layer.hidden);
  op_case.inputs = {values(layer.layout == 1 ? Shape{layer.batch, layer.time, layer.input}
                                             : Shape{layer.time, layer.batch, layer.input},
                           1),
                    values({d, gates, layer.input}, 2),
                    values({d, gates, layer.hidden}, 3),
                    values({d, 2 * gates}, 4),
                    LengthsOf(layer),
                    values(StateOf(layer), 5)};
  op_case.outputs = {true, true, true};
  if (layer.op == "LSTM") {
    op_case.inputs.push_back(values(StateOf(layer), 6));
    op_case.inputs.push_back(values({d, 3 * layer.hidden}, 7));
    op_case.outputs = {true, true, true, true, true};
  }
  return op_case;
}

// X, W and R alone.
OpCase PlainCaseOf(const Layer& layer) {
  OpCase op_case = CaseOf(layer);
  op_case.inputs.resize(3);
  return op_case;
}

// The gradient of a layer, at what the reference kernel gives for `forward`.
OpCase GradientOf(const Layer& layer, const OpCase& forward) {
  const auto known = RunOp(forward, Kernels::kReference);
  EXPECT_TRUE(known.ok()) << known.status();
  if (!known.ok()) return {};
  const bool is_lstm = layer.op == "LSTM";
  const auto input = [&](size_t i) {
    return i < forward.inputs.size() ? forward.inputs[i] : Tensor();
  };
  const Tensor dy = RandomTensor((*known)[0].shape(), 11, -1, 1, layer.dtype);
  const Tensor dh = RandomTensor(StateOf(layer), 12, -1, 1, layer.dtype);
  const Tensor dc = is_lstm ? RandomTensor(StateOf(layer), 13, -1, 1, layer.dtype) : Tensor();
  OpCase gradient;
  gradient.domain = "ai.weft";
  gradient.op = is_lstm ? "LstmGrad" : layer.op == "GRU" ? "GruGrad" : "RnnGrad";
  gradient.attributes = AttributesOf(layer);
  gradient.inputs = {dy,
                     dh,
                     dc,
                     input(2),
                     is_lstm ? input(7) : Tensor(),
                     input(4),
                     input(5),
                     is_lstm ? input(6) : Tensor(),
                     (*known)[0],
                     (*known)[is_lstm ? 3 : 2]};
  if (is_lstm) gradient.inputs.push_back((*known)[4]);
  gradient.outputs = std::vector<bool>(layer.op == "RNN" ? 3 : 5, true);
  return gradient;
}

Tolerance TolerancesOf(DType dtype) {
  if (dtype == DType::kBfloat16) return {.of_magnitude = 4e-2};
  if (dtype == DType::kFloat16) return {.of_magnitude = 6e-3};
  if (dtype == DType::kFloat64) return {.of_magnitude = 1e-12};
  return {.of_magnitude = 1e-5};
}

// Both the layer and its gradient, with all operands and with those alone that must be.
void ExpectAgreement(const Layer& layer, int seeds = 2) {
  const Tolerance tolerance = TolerancesOf(layer.dtype);
  for (const OpCase& forward : {CaseOf(layer), PlainCaseOf(layer)}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(forward, tolerance, seeds));
    EXPECT_TRUE(CheckOnEmulatedGpu(GradientOf(layer, forward), tolerance, seeds));
  }
}

Attributes Linear(int64_t linear) { return {{"linear_before_reset", linear}}; }

TEST(CudaLstmTest, AgreesInAllDirectionsAndLayouts) {
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    for (const int64_t layout : {0, 1}) ExpectAgreement({.direction = direction, .layout = layout});
  }
}

TEST(CudaRnnTest, AgreesInAllDirectionsAndLayouts) {
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    for (const int64_t layout : {0, 1}) {
      ExpectAgreement({.op = "RNN", .direction = direction, .layout = layout});
    }
  }
}

TEST(CudaGruTest, AgreesInAllDirectionsAndLayouts) {
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    for (const int64_t layout : {0, 1}) {
      for (const int64_t linear : {0, 1}) {
        ExpectAgreement(
            {.op = "GRU", .direction = direction, .layout = layout, .attributes = Linear(linear)},
            1);
      }
    }
  }
}

TEST(CudaRecurrentTest, AgreesForAllTypes) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    ExpectAgreement({.direction = "bidirectional", .dtype = dtype}, 1);
    ExpectAgreement({.op = "RNN", .layout = 1, .dtype = dtype}, 1);
    for (const int64_t linear : {0, 1}) {
      ExpectAgreement({.op = "GRU", .attributes = Linear(linear), .dtype = dtype}, 1);
    }
  }
}

// Several blocks, which no sample begins with.
TEST(CudaRecurrentTest, AgreesForLargerStates) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    ExpectAgreement(
        {.op = op, .direction = "bidirectional", .time = 2, .batch = 4, .input = 3, .hidden = 37},
        1);
  }
}

TEST(CudaRecurrentTest, AgreesWithoutElements) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    ExpectAgreement({.op = op, .time = 0, .batch = 2, .hidden = 3});
    ExpectAgreement({.op = op, .time = 2, .batch = 0, .hidden = 3});
    ExpectAgreement({.op = op, .time = 2, .batch = 2, .input = 0, .hidden = 3});
    ExpectAgreement({.op = op, .time = 1, .batch = 1, .input = 1, .hidden = 1});
  }
}

TEST(CudaRecurrentTest, AgreesForEachOutputAlone) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    const Layer layer{.op = op, .direction = "bidirectional", .time = 2, .batch = 2, .hidden = 3};
    const OpCase all = CaseOf(layer);
    for (size_t i = 0; i < all.outputs.size(); ++i) {
      OpCase one = all;
      one.outputs = std::vector<bool>(i + 1, false);
      one.outputs[i] = true;
      EXPECT_TRUE(CheckOnEmulatedGpu(one, {.of_magnitude = 1e-5}));
    }
    const OpCase gradients = GradientOf(layer, all);
    for (size_t i = 1; i < gradients.outputs.size(); ++i) {
      OpCase one = gradients;
      one.outputs = std::vector<bool>(i + 1, false);
      one.outputs[0] = one.outputs[i] = true;
      // No gradient arrives but that of the last state.
      one.inputs[0] = Tensor();
      EXPECT_TRUE(CheckOnEmulatedGpu(one, {.of_magnitude = 1e-5}));
    }
  }
}

TEST(CudaRecurrentTest, AgreesForClippedAndCoupledGates) {
  ExpectAgreement({.attributes = {{"clip", 0.5f}}});
  ExpectAgreement({.direction = "reverse", .attributes = {{"input_forget", int64_t{1}}}});
  ExpectAgreement({.attributes = {{"input_forget", int64_t{1}}, {"clip", 0.7f}}});
  ExpectAgreement({.op = "RNN", .attributes = {{"clip", 0.5f}}});
  for (const int64_t linear : {0, 1}) {
    Attributes clipped = Linear(linear);
    clipped.Set("clip", 0.8f);
    ExpectAgreement({.op = "GRU", .direction = "bidirectional", .attributes = clipped});
  }
}

// Each activation is the gate, the candidate or the output of some cell, in some direction.
TEST(CudaRecurrentTest, AgreesForAllActivations) {
  using Names = std::vector<std::string>;
  const Names all = {
      "Relu",       "Tanh",        "Sigmoid", "Affine",   "LeakyRelu", "ThresholdedRelu",
      "ScaledTanh", "HardSigmoid", "Elu",     "Softsign", "Softplus"};
  for (size_t first = 0; first < all.size(); ++first) {
    const auto names = [&](size_t count) {
      Names some;
      for (size_t i = 0; i < count; ++i) some.push_back(all[(first + 3 * i) % all.size()]);
      return some;
    };
    // Thresholds, slopes and the like: what the activations do not take is left over.
    const Attributes numbers = {{"activation_alpha", std::vector<float>{0.3f, 0.2f, 0.7f}},
                                {"activation_beta", std::vector<float>{0.4f, 0.1f}}};
    Layer layer{.op = "RNN", .time = 2, .batch = 2, .input = 2, .hidden = 5};
    layer.attributes = numbers;
    layer.attributes.Set("activations", names(1));
    ExpectAgreement(layer, 1);
    layer.direction = "bidirectional";
    for (const char* op : {"GRU", "LSTM"}) {
      layer.op = op;
      layer.attributes = numbers;
      layer.attributes.Set("activations", names(layer.op == "GRU" ? 4 : 6));
      ExpectAgreement(layer, 1);
    }
  }
}

TEST(CudaRecurrentTest, ReportsLengthsThatXDoesNotHave) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    for (const int32_t wrong : {-1, 5}) {
      const Layer layer{.op = op, .direction = "bidirectional"};
      OpCase forward = CaseOf(layer);
      OpCase gradient = GradientOf(layer, forward);
      forward.inputs[4] = gradient.inputs[5] = Tensor::Of<int32_t>({3}, {4, wrong, 0});
      for (const OpCase& op_case : {forward, gradient}) {
        EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
            op_case, absl::StatusCode::kInvalidArgument,
            {op_case.op, "sequence_lens is " + std::to_string(wrong), "element 1", "[0, 5)"}));
      }
    }
  }
}

TEST(CudaRecurrentTest, RefusesStatesBeyondItsIndices) {
  const int64_t many = int64_t{1} << 31;
  const OpCase rnn{.op = "RNN",
                   .inputs = {RandomTensor({0, many, 1}, 1), RandomTensor({1, 1, 1}, 2),
                              RandomTensor({1, 1, 1}, 3)}};
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(rnn, absl::StatusCode::kUnimplemented, {"2^31"}));
}

TEST(CudaRecurrentTest, RefusesWrongActivations) {
  OpCase lstm = PlainCaseOf({});
  lstm.attributes.Set("activations", std::vector<std::string>{"Tanh"});
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(lstm, absl::StatusCode::kInvalidArgument,
                                       {"activations", "expected 3"}));
}

// What all steps share is one product; a step is one of both directions.
TEST(CudaLstmTest, MultipliesAllInputsAtOnceThenEachStepsStates) {
  const Layer layer{.direction = "bidirectional"};
  EXPECT_TRUE(CheckOnEmulatedGpu(CaseOf(layer)));
  if (TestsOnARealGpu()) return;  // NVIDIA's library counts no calls
  RecordingBlasLt::Get().TakeCalls();
  const auto outputs = RunOnEmulatedGpu(CaseOf(layer));
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const auto calls = RecordingBlasLt::Get().TakeCalls();
  ASSERT_EQ(calls.size(), 1 + static_cast<size_t>(layer.time));
  EXPECT_EQ(calls[0].spec.m, layer.time * layer.batch);
  EXPECT_EQ(calls[0].spec.n, 2 * 4 * layer.hidden);
  EXPECT_EQ(calls[0].spec.batches, 1);
  for (size_t i = 1; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].spec.m, layer.batch);
    EXPECT_EQ(calls[i].spec.n, 4 * layer.hidden);
    EXPECT_EQ(calls[i].spec.batches, 2);
  }
}

// A state that moves by 1/1100 of what is left in each step: rounded to 16 bits after each, it
// would stay where it is.
TEST(CudaGruTest, AddsUpMoreFinelyThan16Bits) {
  const int64_t time = 64;
  const Tensor bias = Tensor::Of<float>({1, 6}, {7.0f, 0, 4.0f, 0, 0, 0});
  OpCase gru{
      .op = "GRU",
      .attributes = {{"hidden_size", int64_t{1}}},
      .inputs = {RandomTensor({time, 1, 1}, 1, 0, 0, DType::kBfloat16),
                 RandomTensor({1, 3, 1}, 2, 0, 0, DType::kBfloat16),
                 RandomTensor({1, 3, 1}, 3, 0, 0, DType::kBfloat16), Cast(bias, DType::kBfloat16),
                 Tensor(), Cast(Tensor::Of<float>({1, 1, 1}, {0.75f}), DType::kBfloat16)},
      .outputs = {false, true}};
  EXPECT_TRUE(CheckOnEmulatedGpu(gru, {.of_magnitude = 4e-3}));
}

}  // namespace
}  // namespace weft::testing
