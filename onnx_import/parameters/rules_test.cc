// Each rule on a small model, and a near miss that trains.
#include "onnx_import/parameters/rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/parameters/trainable.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

using Numbers = std::vector<float>;

// Numbers that nobody would take for a table: a generator of Park and Miller's kind.
Numbers Drawn(int64_t count) {
  Numbers numbers;
  uint64_t state = 17;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 48271 % 2147483647;
    numbers.push_back(static_cast<float>(state) / 2147483647.0f - 0.5f);
  }
  return numbers;
}

class RulesTest : public ::testing::Test {
 protected:
  // Adds a float initializer to the model of the next Decide.
  void Store(const std::string& name, std::vector<int64_t> dims, const Numbers& numbers) {
    onnx::TensorProto tensor;
    tensor.set_name(name);
    tensor.set_data_type(static_cast<int>(DType::kFloat32));
    for (const int64_t dim : dims) tensor.add_dims(dim);
    for (const float number : numbers) tensor.add_float_data(number);
    stored_.push_back(std::move(tensor));
  }
  void SetSignature(const std::string& text) { signature_ = text; }

  // Imports the model with what is stored, and decides on it. `renamed`: names that the text of a
  // body cannot have.
  void Decide(const std::string& body, const TrainableOptions& options = {},
              const std::map<std::string, std::string>& renamed = {}) {
    onnx::ModelProto proto = ModelOf(20, body);
    for (const onnx::TensorProto& tensor : stored_)
      *proto.mutable_graph()->add_initializer() = tensor;
    for (const auto& [from, to] : renamed) {
      for (onnx::TensorProto& tensor : *proto.mutable_graph()->mutable_initializer()) {
        if (tensor.name() == from) tensor.set_name(to);
      }
      for (onnx::NodeProto& node : *proto.mutable_graph()->mutable_node()) {
        std::replace(node.mutable_input()->begin(), node.mutable_input()->end(), from, to);
      }
    }
    if (!signature_.empty()) {
      onnx::StringStringEntryProto* const entry = proto.mutable_graph()->add_metadata_props();
      entry->set_key("pkg.torch.export.ExportedProgram.graph_signature");
      entry->set_value(signature_);
    }
    stored_.clear();
    decisions_.clear();
    auto model = Import(proto);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto decisions = MarkTrainable(*model, options);
    ASSERT_TRUE(decisions.ok()) << decisions.status();
    for (const ParameterDecision& decision : *decisions) decisions_[decision.name] = decision;
  }

  bool Trains(const std::string& name) {
    EXPECT_TRUE(decisions_.contains(name)) << name;
    return decisions_[name].trainable;
  }
  std::string Reason(const std::string& name) { return decisions_[name].reason; }

  std::vector<onnx::TensorProto> stored_;
  std::string signature_;
  std::map<std::string, ParameterDecision> decisions_;
};

constexpr char kScores[] =
    "agraph (float[2,4,4] x) => (float[2,4,4] y) { s = Add (x, mask)  y = Softmax <axis = -1> (s) "
    "}";

TEST_F(RulesTest, MasksOfScoresDoNotTrain) {
  Numbers hides(16, 0.0f);
  for (const int i : {1, 2, 3, 6, 7, 11}) hides[i] = -1e9f;
  Store("mask", {1, 4, 4}, hides);
  Decide(kScores);
  EXPECT_FALSE(Trains("mask"));
  EXPECT_EQ(Reason("mask"), "hides scores before Softmax, at Add.B (node 'Add_0')");

  for (float& number : hides) number = number == 0 ? 0 : -100;  // shifted windows
  Store("mask", {1, 4, 4}, hides);
  Decide(kScores);
  EXPECT_FALSE(Trains("mask"));
}

TEST_F(RulesTest, ABiasOfScoresTrains) {
  Store("mask", {1, 4, 4}, Drawn(16));
  Decide(kScores);
  EXPECT_TRUE(Trains("mask")) << Reason("mask");
  // The numbers of a mask, where no Softmax follows.
  Numbers hides(16, 0.0f);
  hides[3] = -1e9f;
  Store("mask", {1, 4, 4}, hides);
  Decide("agraph (float[2,4,4] x) => (float[2,4,4] y) { s = Add (x, mask)  y = Relu (s) }");
  EXPECT_TRUE(Trains("mask")) << Reason("mask");
}

TEST_F(RulesTest, ABiasOfScoresThatBeginsWithZeroTrainsByItsName) {
  Store("mask", {1, 4, 4}, Numbers(16, 0.0f));
  Decide(kScores);
  EXPECT_TRUE(Trains("mask")) << Reason("mask");
  Store("val_7", {1, 4, 4}, Numbers(16, 0.0f));
  Decide(
      "agraph (float[2,4,4] x) => (float[2,4,4] y) {"
      " s = Add (x, val_7)  y = Softmax <axis = -1> (s) }");
  EXPECT_FALSE(Trains("val_7"));
}

TEST_F(RulesTest, MasksOfZeroAndOneDoNotTrain) {
  const std::string body = "agraph (float[2,3,3] x) => (float[2,3,3] y) { y = Mul (x, m) }";
  Store("m", {1, 3, 3}, {1, 0, 0, 1, 1, 0, 1, 1, 1});
  Decide(body);
  EXPECT_FALSE(Trains("m"));
  EXPECT_THAT(Reason("m"), HasSubstr("holds 0 and 1 alone"));
  Store("m", {1, 3, 3}, Numbers(9, 1.0f));  // scales that begin with 1
  Decide(body);
  EXPECT_TRUE(Trains("m")) << Reason("m");
  Store("m", {3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1});  // a recurrent matrix that begins so
  Decide("agraph (float[2,3,3] x) => (float[2,3,3] y) { y = MatMul (x, m) }");
  EXPECT_TRUE(Trains("m")) << Reason("m");
}

// As Swin computes the mask of its shifted windows.
TEST_F(RulesTest, NumbersOfRegionsDoNotTrain) {
  const std::string body =
      "agraph (float[4,3,3] x) => (float[4,3,3] y) "
      "<int64[1] one = {1}, int64[1] two = {2}, float zero = {0}, float far = {-100}> {"
      "  a = Unsqueeze (r, one)  b = Unsqueeze (r, two)  d = Sub (a, b)  same = Equal (d, zero)"
      "  other = Not (same)  f = Where (other, far, d)  m = Where (same, zero, f)"
      "  s = Add (x, m)  y = Softmax <axis = -1> (s) }";
  Store("r", {4, 3}, {0, 1, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8});
  Decide(body);
  EXPECT_FALSE(Trains("r"));
  EXPECT_THAT(Reason("r"), HasSubstr("holds numbers that are compared to make a mask"));
  // The difference itself is added too: now the numbers matter, and they are a parameter.
  Store("r", {4, 3}, {0, 1, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8});
  Decide(
      "agraph (float[4,3,3] x) => (float[4,3,3] y) "
      "<int64[1] one = {1}, int64[1] two = {2}> {"
      "  a = Unsqueeze (r, one)  b = Unsqueeze (r, two)  d = Sub (a, b)  s = Add (x, d)"
      "  y = Softmax <axis = -1> (s) }");
  EXPECT_TRUE(Trains("r")) << Reason("r");
}

Numbers Rotation(int64_t positions, int64_t half, double (*wave)(double)) {
  Numbers numbers;
  for (int64_t i = 0; i < positions; ++i) {
    for (int64_t j = 0; j < half; ++j) {
      const double frequency = std::pow(10000.0, -static_cast<double>(j) / half);
      numbers.push_back(static_cast<float>(wave(i * frequency)));
    }
  }
  return numbers;
}

double Cosine(double x) { return std::cos(x); }
double Sine(double x) { return std::sin(x); }

TEST_F(RulesTest, TablesOfRotaryEmbeddingsDoNotTrain) {
  const std::string body =
      "agraph (float[2,12,8] x) => (float[2,12,8] y) {"
      " a = Mul (x, c)  b = Mul (x, s)  y = Add (a, b) }";
  Store("c", {1, 12, 8}, Rotation(12, 8, Cosine));
  Store("s", {12, 8}, Rotation(12, 8, Sine));
  Decide(body);
  EXPECT_FALSE(Trains("c"));
  EXPECT_FALSE(Trains("s"));
  EXPECT_THAT(Reason("s"), HasSubstr("is a table of cos and sin of a linear ramp, at Mul.B"));

  Numbers moved = Rotation(12, 8, Cosine);
  moved[5 * 8] += 0.05f;  // one number learned
  Store("c", {1, 12, 8}, moved);
  Store("s", {12, 8}, Drawn(96));
  Decide(body);
  EXPECT_TRUE(Trains("c")) << Reason("c");
  EXPECT_TRUE(Trains("s")) << Reason("s");
}

TEST_F(RulesTest, SinusoidalPositionsDoNotTrainThoughTheExporterCallsThemParameters) {
  Numbers table;  // [32, 8]: sines, then cosines, as Whisper has them; with a row for padding
  const Numbers sines = Rotation(32, 4, Sine), cosines = Rotation(32, 4, Cosine);
  for (int i = 0; i < 32; ++i) {
    for (int j = 0; j < 4; ++j) table.push_back(i == 1 ? 0 : sines[i * 4 + j]);
    for (int j = 0; j < 4; ++j) table.push_back(i == 1 ? 0 : cosines[i * 4 + j]);
  }
  const std::string body =
      "agraph (float[2,5,8] x, int64[5] ids) => (float[2,5,8] y) {"
      " p = Gather (positions_weight, ids)  y = Add (x, p) }";
  SetSignature("p: PARAMETER target='positions_weight'");
  Store("positions_weight", {32, 8}, table);
  Decide(body);
  EXPECT_FALSE(Trains("positions_weight"));
  Store("positions_weight", {32, 8}, Drawn(256));
  Decide(body);
  EXPECT_TRUE(Trains("positions_weight")) << Reason("positions_weight");
}

TEST_F(RulesTest, FrequenciesDoNotTrain) {
  const std::string body =
      "agraph (float[2,1,5] x) => (float[2,4,5] y) {"
      " a = MatMul (f, x)  c = Cos (a)  s = Sin (a)  y = Add (c, s) }";
  Store("f", {1, 4, 1}, {1.0f, 0.1f, 0.01f, 0.001f});
  Decide(body);
  EXPECT_FALSE(Trains("f"));
  EXPECT_THAT(Reason("f"), HasSubstr("frequencies that only Cos and Sin see"));
  Store("f", {1, 4, 1}, {0.7f, -0.2f, 0.4f, 0.1f});  // learned Fourier features
  Decide(body);
  EXPECT_TRUE(Trains("f")) << Reason("f");
}

TEST_F(RulesTest, SlopesOfAlibiDoNotTrain) {
  const std::string body = "agraph (float[2,4,3] x) => (float[2,4,3] y) { y = Mul (x, slopes) }";
  Store("slopes", {4, 1}, {0.25f, 0.0625f, 0.015625f, 0.00390625f});
  Decide(body);
  EXPECT_FALSE(Trains("slopes"));
  Store("slopes", {4, 1}, Numbers(4, 0.1f));  // a layer's scale
  Decide(body);
  EXPECT_TRUE(Trains("slopes")) << Reason("slopes");
}

TEST_F(RulesTest, StatisticsOfTheInputDoNotTrain) {
  const Numbers mean = {0.485f, 0.456f, 0.406f}, deviation = {0.229f, 0.224f, 0.225f};
  Store("mean", {3, 1, 1}, mean);
  Store("std", {3, 1, 1}, deviation);
  Decide(
      "agraph (float[N,3,4,4] x) => (float[N,3,4,4] y) {"
      " a = Sub (x, mean)  y = Div (a, std) }");
  EXPECT_FALSE(Trains("mean"));
  EXPECT_FALSE(Trains("std"));
  Store("mean", {3, 1, 1}, mean);
  Decide(
      "agraph (float[N,3,4,4] x) => (float[N,3,4,4] y) {"
      " r = Relu (x)  y = Sub (r, mean) }");
  EXPECT_TRUE(Trains("mean")) << Reason("mean");
}

std::string GroupNormalization(const std::string& rest) {
  return absl::StrCat(
      "agraph (float[2,4,3,3] x) => (float[2,4,3,3] y) "
      "<int64[3] to = {0, 2, -1}, int64[4] back = {2, 4, 3, 3}> {"
      " r = Reshape (x, to)  n = InstanceNormalization (r, one, zero)  b = Reshape (n, back)",
      rest, " }");
}

TEST_F(RulesTest, WhatFillsADecomposedGroupNormalizationDoesNotTrain) {
  const auto store = [this](const Numbers& scale) {
    Store("one", {2}, scale);
    Store("zero", {2}, {0, 0});
    Store("gamma", {4, 1, 1}, Numbers(4, 1.0f));
    Store("beta", {4, 1, 1}, Numbers(4, 0.0f));
  };
  store({1, 1});
  Decide(GroupNormalization(" g = Mul (b, gamma)  y = Add (g, beta)"));
  EXPECT_FALSE(Trains("one"));
  EXPECT_FALSE(Trains("zero"));
  EXPECT_TRUE(Trains("gamma")) << Reason("gamma");
  EXPECT_TRUE(Trains("beta")) << Reason("beta");

  store({1, 0.9f});  // a trained one
  Decide(GroupNormalization(" g = Mul (b, gamma)  y = Add (g, beta)"));
  EXPECT_TRUE(Trains("one")) << Reason("one");
  Store("one", {2}, {1, 1});
  Store("zero", {2}, {0, 0});
  Decide(GroupNormalization(" y = Relu (b)"));  // a normalization between reshapes of its own
  EXPECT_TRUE(Trains("one")) << Reason("one");
}

// wav2vec 2.0: a group for each channel, and no shape to go back to.
TEST_F(RulesTest, WhatFillsAGroupNormalizationOfSingleChannelsDoesNotTrain) {
  const auto decide = [this](const std::vector<int64_t>& scale) {
    Store("one", {4}, Numbers(4, 1.0f));
    Store("zero", {4}, Numbers(4, 0.0f));
    Store("gamma", scale, Numbers(4, 1.0f));
    Decide(
        "agraph (float[2,4,4] x) => (float[2,4,4] y) <int64[3] to = {0, 4, -1}> {"
        " r = Reshape (x, to)  n = InstanceNormalization (r, one, zero)  y = Mul (n, gamma) }");
  };
  decide({4, 1});
  EXPECT_FALSE(Trains("one"));
  EXPECT_FALSE(Trains("zero"));
  EXPECT_TRUE(Trains("gamma")) << Reason("gamma");
  decide({4});
  EXPECT_TRUE(Trains("one")) << "the factor is no scale of channels";
}

TEST_F(RulesTest, NeutralNumbersOfANormalizationDoNotTrainWhereTheExporterMadeThem) {
  const char* const kBody =
      "agraph (float[2,4,3] x) => (float[2,4,3] y) {"
      " n = InstanceNormalization (x, scale, shift)  r = Relu (n)"
      " y = LayerNormalization (r, gain) }";
  const auto decide = [&](float one, std::map<std::string, std::string> names) {
    Store("scale", {4}, Numbers(4, one));
    Store("shift", {4}, Numbers(4, 0.0f));
    Store("gain", {3}, Numbers(3, 1.0f));
    Decide(kBody, {}, std::move(names));
  };
  // As TorchScript calls a Constant node.
  decide(1, {{"scale", "/4/Constant_output_0"}, {"shift", "/4/Constant_1_output_0"}});
  EXPECT_FALSE(Trains("/4/Constant_output_0"));
  EXPECT_FALSE(Trains("/4/Constant_1_output_0"));
  EXPECT_TRUE(Trains("gain")) << "a parameter of that value";
  decide(0.5f, {{"scale", "/4/Constant_output_0"}});
  EXPECT_TRUE(Trains("/4/Constant_output_0")) << Reason("/4/Constant_output_0");

  // Of torch.export, whose signature knows all parameters.
  signature_ = "p_gain: PARAMETER target='gain'\n";
  decide(1, {});
  EXPECT_FALSE(Trains("scale"));
  EXPECT_FALSE(Trains("shift"));
  EXPECT_TRUE(Trains("gain"));
}

TEST_F(RulesTest, GridsOfCoordinatesDoNotTrain) {
  const char* const kBody =
      "agraph (float[N,3] x) => (float[A,B,C,D] y) { p = MatMul (grid, w)  s = ReduceSum (x)"
      "  y = Add (p, s) }";
  Numbers grid;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 5; ++j) {
      grid.push_back(std::log1p(static_cast<float>(i)));
      grid.push_back(0.1f * static_cast<float>(j * j) - 1);
    }
  }
  Store("grid", {1, 4, 5, 2}, grid);
  Store("w", {2, 3}, Drawn(6));
  Decide(kBody);
  EXPECT_FALSE(Trains("grid"));
  EXPECT_TRUE(Trains("w")) << Reason("w");
  grid[7] += 0.01f;  // learned queries
  Store("grid", {1, 4, 5, 2}, grid);
  Store("w", {2, 3}, Drawn(6));
  Decide(kBody);
  EXPECT_TRUE(Trains("grid")) << Reason("grid");
}

TEST_F(RulesTest, SingleNumbersTrainAsSlopesAndAsLogarithms) {
  Store("slope", {1}, {0.25f});
  Decide(
      "agraph (float[N,2,3] x) => (float[N,2,3] y) <int64[1] axis = {1}> {"
      " s = Unsqueeze (slope, axis)  y = PRelu (x, s) }",
      {}, {{"slope", "act.weight"}});
  EXPECT_TRUE(Trains("act.weight")) << Reason("act.weight");

  Store("logit_scale", {}, {2.6f});
  Decide("agraph (float[N,3] x) => (float[N,3] y) { s = Exp (logit_scale)  y = Mul (x, s) }");
  EXPECT_TRUE(Trains("logit_scale")) << Reason("logit_scale");
  Store("scale", {}, {14.0f});
  Decide("agraph (float[N,3] x) => (float[N,3] y) { y = Mul (x, scale) }");
  EXPECT_FALSE(Trains("scale"));
  EXPECT_EQ(decisions_["scale"].kind, DecisionKind::kConstant);
  Store("scale", {}, {14.0f});
  Decide("agraph (float[N,3] x) => (float[N,3] y) { y = Mul (x, scale) }", {},
         {{"scale", "block.scale"}});
  EXPECT_EQ(decisions_["block.scale"].kind, DecisionKind::kUndecided) << "buffers are called so";
}

// A_log of a state space, which the exporter has cast; frequencies are made so, too.
TEST_F(RulesTest, LogarithmsTrainThoughTheirNameIsMadeUp) {
  const char* const kBody =
      "agraph (float[N,4] x) => (float[N,4] y) { e = Exp (val_1)  y = Mul (x, e) }";
  Store("val_1", {4, 4}, Drawn(16));
  Decide(kBody);
  EXPECT_TRUE(Trains("val_1")) << Reason("val_1");
  Store("val_1", {4}, {0, -1, -2, -3});
  Decide(kBody);
  EXPECT_FALSE(Trains("val_1"));
}

TEST_F(RulesTest, AZeroBiasOfLogitsDoesNotTrainWhereItsNameSaysBuffer) {
  const auto decide = [this](const std::string& name) {
    Store(name, {1, 3}, {0, 0, 0});
    Store("w", {2, 3}, Drawn(6));
    Decide(absl::StrCat("agraph (float[N,2] x) => (float[N,3] y) { l = MatMul (x, w)  y = Add (l, ",
                        name, ") }"));
    return Trains(name);
  };
  EXPECT_FALSE(decide("final_logits_bias"));
  EXPECT_TRUE(decide("lm_head_bias")) << Reason("lm_head_bias");
}

// BART in training mode: PyTorch writes the way of the buffer to the scores' device as a Cast.
TEST_F(RulesTest, AZeroBufferBehindACastDoesNotTrain) {
  const auto decide = [this](const std::string& use) {
    Store("final_logits_bias", {1, 3}, {0, 0, 0});
    Store("w", {2, 3}, Drawn(6));
    Decide(
        absl::StrCat("agraph (float[N,2] x) => (float[N,3] y) { l = MatMul (x, w)"
                     "  b = Cast <to = 1> (final_logits_bias)  y = ",
                     use, " (l, b) }"));
    return Trains("final_logits_bias");
  };
  EXPECT_FALSE(decide("Add"));
  EXPECT_TRUE(decide("Mul")) << "no addend";
}

TEST_F(RulesTest, TheExportersKindsAreBelieved) {
  SetSignature(
      "\n# inputs\np_scale: PARAMETER target='scale'\nb_shift: BUFFER target='shift' "
      "persistent=True\nc_w: CONSTANT_TENSOR target='w'\nx: USER_INPUT\n\n# outputs\n");
  Store("scale", {1}, {3});
  Store("shift", {4}, Drawn(4));
  Store("w", {4, 4}, Drawn(16));
  Decide(
      "agraph (float[N,4] x) => (float[N,4] y) {"
      " a = Mul (x, scale)  b = Add (a, shift)  y = MatMul (b, w) }");
  EXPECT_TRUE(Trains("scale")) << "a single number that is a parameter (CLIP's logit_scale)";
  EXPECT_FALSE(Trains("shift"));
  EXPECT_EQ(Reason("shift"), "a buffer, says the exporter");
  EXPECT_EQ(decisions_["shift"].kind, DecisionKind::kBuffer);
  EXPECT_FALSE(Trains("w"));
  EXPECT_EQ(Reason("w"), "a constant, says the exporter");
}

// The prefix decided alone, before the exporter was asked and whatever the use.
TEST_F(RulesTest, ANameThatBeginsWithConstDecidesOnlyWithTheUse) {
  const std::string body =
      "agraph (float[N,4] x) => (float[N,4] y) {"
      " a = MatMul (x, w)  b = Max (a, floor)  y = Relu (b) }";
  const auto decide = [this, &body](const std::string& signature) {
    SetSignature(signature);
    Store("w", {4, 4}, Drawn(16));
    Store("floor", {4}, Drawn(4));
    Decide(body, {}, {{"w", "const.weight"}, {"floor", "const.floor"}});
  };
  decide("");
  EXPECT_TRUE(Trains("const.weight")) << "of a module called const: " << Reason("const.weight");
  EXPECT_FALSE(Trains("const.floor"));
  EXPECT_THAT(Reason("const.floor"),
              HasSubstr("name that begins with const., and is used as no parameter is, at Max."));
  decide("p_const_floor: PARAMETER target='const.floor'\n");
  EXPECT_TRUE(Trains("const.floor")) << "the exporter says so: " << Reason("const.floor");
}

TEST_F(RulesTest, AParameterWithAnInfinityNeverTrains) {
  SetSignature("p_w: PARAMETER target='w'");
  Store("w", {2}, {0, -std::numeric_limits<float>::infinity()});
  Decide("agraph (float[2] x) => (float[2] y) { y = Add (x, w) }", {.trainable = {"*"}});
  EXPECT_FALSE(Trains("w"));
}

// PyTorch's exporters name folded tensors so, weights too.
TEST_F(RulesTest, AMadeUpNameAloneDecidesNothing) {
  const char* const kBody =
      "agraph (float[N,4] x) => (float[N,4] y) {"
      " a = MatMul (x, val_3)  b = Add (a, val_4)  c = Max (b, val_5)  y = Relu (c) }";
  Store("val_3", {4, 4}, Drawn(16));
  Store("val_4", {4}, Drawn(4));
  Store("val_5", {4}, Drawn(4));
  Decide(kBody);
  EXPECT_TRUE(Trains("val_3")) << Reason("val_3");
  EXPECT_TRUE(Trains("val_4")) << Reason("val_4");
  EXPECT_FALSE(Trains("val_5"));
  EXPECT_THAT(Reason("val_5"), HasSubstr("named as exporters name what they compute"));
  Store("floor", {4}, Drawn(4));
  Decide("agraph (float[N,4] x) => (float[N,4] y) { c = Max (x, floor)  y = Relu (c) }");
  EXPECT_TRUE(Trains("floor")) << "the same use, by the name of a parameter";
}

TEST_F(RulesTest, CutPositionsTrain) {
  Store("val_9", {3, 4}, Drawn(12));
  Decide("agraph (float[N,3,4] x) => (float[N,3,4] y) { a = Add (x, val_9)  y = Relu (a) }");
  EXPECT_TRUE(Trains("val_9")) << Reason("val_9");
  Store("val_9", {3, 4}, Numbers(12, 0.5f));  // a filling
  Decide("agraph (float[N,3,4] x) => (float[N,3,4] y) { a = Add (x, val_9)  y = Relu (a) }");
  EXPECT_FALSE(Trains("val_9"));
}

// The row of a padding token is zeros; it was all that was looked at.
TEST_F(RulesTest, CutPositionsTrainBehindARowOfZeros) {
  std::vector<float> positions = Drawn(4 * 512);
  std::fill_n(positions.begin(), 512, 0.0f);
  Store("val_9", {4, 512}, positions);
  Decide("agraph (float[N,4,512] x) => (float[N,4,512] y) { a = Add (x, val_9)  y = Relu (a) }");
  EXPECT_TRUE(Trains("val_9")) << Reason("val_9");
}

// With 256 numbers at the distance of three rows it would be column 0 alone.
TEST_F(RulesTest, CutPositionsTrainBesideAColumnOfZeros) {
  std::vector<float> positions = Drawn(768 * 8);
  for (size_t row = 0; row < 768; ++row) positions[row * 8] = 0;
  Store("val_9", {768, 8}, positions);
  Decide("agraph (float[N,768,8] x) => (float[N,768,8] y) { a = Add (x, val_9)  y = Relu (a) }");
  EXPECT_TRUE(Trains("val_9")) << Reason("val_9");
}

TEST_F(RulesTest, ClassTokensLayerScalesAndTablesTrain) {
  Store("token", {1, 1, 4}, Drawn(4));
  Store("gamma", {4}, Numbers(4, 1e-5f));
  Store("table", {9, 4}, Drawn(36));
  Store("positions", {1, 4, 4}, Drawn(16));
  Decide(
      "agraph (float[1,3,4] x, int64[4] ids) => (float[1,4,4] y) {"
      " a = Concat <axis = 1> (token, x)  b = Add (a, positions)  c = Mul (b, gamma)"
      " t = Gather (table, ids)  s = Add (c, t)  y = Softmax <axis = -1> (s) }");
  for (const char* const name : {"token", "gamma", "table", "positions"}) {
    EXPECT_TRUE(Trains(name)) << Reason(name);
  }
}

TEST_F(RulesTest, EachRuleHasANameOfItsOwn) {
  std::vector<std::string> names;
  for (const Rule& rule : TrainableRules()) names.emplace_back(rule.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace weft::testing
