#include "onnx_import/edit/ties.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/file_edit.h"
#include "onnx_import/exporter.h"
#include "onnx_import/importer.h"
#include "onnx_import/testing/settled_model.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Two fresh layers and a head, as torch.export writes them: every scale is one tensor, every bias
// another.
onnx::ModelProto FreshLayers() {
  onnx::ModelProto model =
      ModelOf(17,
              "agraph (float[N, 2] x) => (float[N, 2] y)"
              " <float[2] ones = {1, 1}, float[2] zeros = {0, 0},"
              "  float[2, 2] w0 = {1, 2, 3, 4}, float[2, 2] w1 = {5, 6, 7, 8}> {"
              "  n0 = LayerNormalization (x, ones, zeros)"
              "  f0 = Gemm (n0, w0, zeros)"
              "  n1 = LayerNormalization (f0, ones, zeros)"
              "  p1 = MatMul (n1, w1)"
              "  y = Add (p1, zeros) }");
  SetModule(model, 0, "layers.0.norm");
  SetModule(model, 1, "layers.0.fc");
  SetModule(model, 2, "layers.1.norm");
  SetModule(model, 3, "layers.1.attn");
  SetModule(model, 4, "layers.1.attn");
  onnx::GraphProto& graph = *model.mutable_graph();
  Rename(graph, "ones", "layers.0.norm.weight");
  Rename(graph, "zeros", "layers.0.norm.bias");
  Rename(graph, "w0", "layers.0.fc.weight");
  Rename(graph, "w1", "layers.1.attn.in_proj_weight");
  return model;
}

TEST(SettleTies, GivesEachModuleItsTensorAndItsName) {
  const Settled settled(FreshLayers());
  ASSERT_TRUE(settled.status().ok()) << settled.status();
  EXPECT_THAT(settled.Untied(),
              UnorderedElementsAre("layers.1.norm.weight", "layers.0.fc.bias", "layers.1.norm.bias",
                                   "layers.1.attn.in_proj_bias"));
  EXPECT_THAT(settled.node(0).input(),
              ElementsAre("x", "layers.0.norm.weight", "layers.0.norm.bias"));
  EXPECT_EQ(settled.node(1).input(2), "layers.0.fc.bias");
  EXPECT_THAT(settled.node(2).input(),
              ElementsAre("f0", "layers.1.norm.weight", "layers.1.norm.bias"));
  EXPECT_EQ(settled.node(4).input(1), "layers.1.attn.in_proj_bias");
  EXPECT_THAT(settled.report().kept, IsEmpty());
  for (const onnx::TensorProto& tensor : settled.proto().graph().initializer()) {
    if (tensor.name() == "layers.1.norm.weight") {
      EXPECT_THAT(tensor.float_data(), ElementsAre(1, 1));
    }
    if (tensor.name() == "layers.0.fc.bias") {
      EXPECT_THAT(tensor.float_data(), ElementsAre(0, 0));
    }
  }
}

TEST(SettleTies, NamesAreTheSameEachTime) {
  EXPECT_EQ(Settled(FreshLayers()).proto().SerializeAsString(),
            Settled(FreshLayers()).proto().SerializeAsString());
}

TEST(SettleTies, AnEditedFileIsEditedNoFurther) {
  const onnx::ModelProto once = Settled(FreshLayers()).proto();
  const Settled twice(once);
  EXPECT_THAT(twice.Untied(), IsEmpty());
  EXPECT_EQ(twice.proto().SerializeAsString(), once.SerializeAsString());
}

TEST(SettleTies, TellsModulesWithoutNamesApartByTheirWeights) {
  onnx::ModelProto model = FreshLayers();
  for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) node.clear_metadata_props();
  const Settled settled(model);
  // The first normalization reads the input of the model, the second follows a product.
  EXPECT_THAT(settled.Untied(), SizeIs(4));
  EXPECT_NE(settled.node(0).input(1), settled.node(2).input(1));
  EXPECT_NE(settled.node(0).input(2), settled.node(2).input(2));
  EXPECT_NE(settled.node(1).input(2), settled.node(4).input(1));
}

TEST(SettleTies, ANameWithoutModuleComesFromTheNode) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 2] x) => (float[N, 2] y)"
                                   " <float[2] b = {0, 0}, float[2, 2] v = {1, 2, 3, 4},"
                                   "  float[2, 2] w = {5, 6, 7, 8}> {"
                                   "  h = Gemm (x, v, b)  y = Gemm (h, w, b) }");
  model.mutable_graph()->mutable_node(1)->set_name("second");
  EXPECT_THAT(Settled(model).Untied(), ElementsAre("second.C"));
  model.mutable_graph()->add_initializer()->CopyFrom(FloatTensor("second.C", {2}, 1, 1));
  EXPECT_THAT(Settled(model).Untied(), ElementsAre("second.C_2"));
}

TEST(SettleTies, IdentityNodesOfTorchScriptBecomeTensors) {
  const onnx::ModelProto model =
      ModelOf(17,
              "agraph (float[N, 2] x) => (float[N, 2] y)"
              " <float[2] norm_bias = {0, 0}, float[2] norm_weight = {1, 1},"
              "  float[2, 2] w = {1, 2, 3, 4}> {"
              "  fc_bias = Identity (norm_bias)"
              "  last_bias = Identity (fc_bias)"
              "  n = LayerNormalization (x, norm_weight, norm_bias)"
              "  f = Gemm (n, w, fc_bias)  y = Gemm (f, w, last_bias) }");
  const Settled settled(model);
  EXPECT_THAT(settled.Untied(), UnorderedElementsAre("fc_bias", "last_bias"));
  EXPECT_THAT(settled.Operators(), ElementsAre("LayerNormalization", "Gemm", "Gemm"));
  EXPECT_THAT(settled.Initializers(), Contains("last_bias"));
}

// DeiT's tokens, Swin's scales: no operator has an input for such parameters.
TEST(SettleTies, NamesOfTorchScriptTellOtherParametersApart) {
  const auto untied = [](const std::string& values) {
    return Settled(ModelOf(17, absl::StrCat("agraph (float[1, N, 2] x) => (float[1, M, 2] y)"
                                            " <float[1, 1, 2] cls_token = {",
                                            values,
                                            "}> {"
                                            "  distillation_token = Identity (cls_token)"
                                            "  a = Sqrt (cls_token)  b = Sqrt (distillation_token)"
                                            "  y = Concat <axis = 1> (a, b, x) }")))
        .Untied();
  };
  EXPECT_THAT(untied("0, 0"), ElementsAre("distillation_token"));
  EXPECT_THAT(untied("1, 2"), IsEmpty()) << "the author's tie";
}

// DeBERTa's relative positions: the exporter has looked them up, and each layer multiplies them by
// weights of its own. What says that the layers are copies does not say it of their input.
TEST(SettleTies, WhatSeveralWeightsMultiplyIsOneInput) {
  const auto untied = [](const std::string& first, const std::string& second) {
    onnx::ModelProto model =
        ModelOf(17, absl::StrCat("agraph (float[2, 2] x) => (float[2, 2] y)"
                                 " <float[2, 2] made = {1, 2, 3, 4}, float[2] bias = {1, 2},"
                                 "  float[2, 2] v = {5, 6, 7, 8}, float[2, 2] w = {8, 7, 6, 5}> {"
                                 "  more = Identity (made)  others = Identity (bias)"
                                 "  a = MatMul ",
                                 first, "  b = Add (a, bias)  c = MatMul ", second,
                                 "  d = Add (c, others)  y = Add (b, d) }"));
    onnx::GraphProto& graph = *model.mutable_graph();
    for (const auto& [node, name] : std::map<int, std::string>{{2, "/layers.0/fc/MatMul"},
                                                               {3, "/layers.0/fc/Add"},
                                                               {4, "/layers.1/fc/MatMul"},
                                                               {5, "/layers.1/fc/Add"}}) {
      graph.mutable_node(node)->set_name(name);
    }
    Rename(graph, "made", "onnx::MatMul_1");
    Rename(graph, "more", "onnx::MatMul_2");
    Rename(graph, "bias", "layers.0.fc.bias");
    Rename(graph, "others", "layers.1.fc.bias");
    return Settled(model).Untied();
  };
  EXPECT_THAT(untied("(made, v)", "(more, w)"), ElementsAre("layers.1.fc.bias"));
  EXPECT_THAT(untied("(x, made)", "(x, more)"),
              UnorderedElementsAre("layers.1.fc.bias", "onnx::MatMul_2"))
      << "weights of copies";
}

TEST(SettleTies, ATensorThatNobodyReadsByItsOwnNameGoes) {
  const Settled settled(ModelOf(17,
                                "agraph (float[N, 2] x) => (float[N, 2] y)"
                                " <float[2] merged = {0, 0}, float[2, 2] v = {1, 2, 3, 4},"
                                "  float[2, 2] w = {5, 6, 7, 8}> {"
                                "  a = Identity (merged)  b = Identity (merged)"
                                "  h = Gemm (x, v, a)  y = Gemm (h, w, b) }"));
  EXPECT_THAT(settled.Initializers(), UnorderedElementsAre("v", "w", "a", "b"));
  EXPECT_THAT(settled.Operators(), ElementsAre("Gemm", "Gemm"));
}

// An output of the graph reads a name. It got a tensor that nobody read.
TEST(SettleTies, AnOutputFollowsTheTensorThatHasItsName) {
  const Settled settled(ModelOf(17,
                                "agraph (float[N, 2] x) => (float[N, 2] y, float[2] b)"
                                " <float[2] merged = {0, 0}, float[2, 2] v = {1, 2, 3, 4},"
                                "  float[2, 2] w = {5, 6, 7, 8}> {"
                                "  a = Identity (merged)  b = Identity (merged)"
                                "  h = Gemm (x, v, a)  y = Gemm (h, w, b) }"));
  ASSERT_TRUE(settled.status().ok()) << settled.status();
  EXPECT_THAT(settled.Untied(), UnorderedElementsAre("a", "b"));
  EXPECT_THAT(settled.Initializers(), UnorderedElementsAre("v", "w", "a", "b"));
}

TEST(SettleTies, TensorsInConstantNodesAreUntiedToo) {
  const Settled settled(ModelOf(17,
                                "agraph (float[N, 2] x) => (float[N, 2] y)"
                                " <float[2, 2] v = {1, 2, 3, 4}, float[2, 2] w = {5, 6, 7, 8}> {"
                                "  b = Constant <value = float[2] {0, 0}> ()"
                                "  h = Gemm (x, v, b)  y = Gemm (h, w, b) }"));
  EXPECT_THAT(settled.Initializers(), ElementsAre("v", "w", "y.C"));
  EXPECT_EQ(settled.node(1).input(2), "b");
  EXPECT_EQ(settled.node(2).input(2), "y.C");
}

// ---- What stays tied.

// An embedding whose table is the head too, transposed.
onnx::ModelProto TiedHead() {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (int64[N] ids) => (float[N, 3] y)"
                                   " <float[3, 2] wte = {1, 2, 3, 4, 5, 6}> {"
                                   "  row = Gather (wte, ids)"
                                   "  turned = Transpose <perm = [1, 0]> (wte)"
                                   "  y = MatMul (row, turned) }");
  SetModule(model, 0, "wte");
  SetModule(model, 2, "lm_head");
  Rename(*model.mutable_graph(), "wte", "wte.weight");
  return model;
}

TEST(SettleTies, KeepsAnEmbeddingAndItsHead) {
  const Settled settled(TiedHead());
  EXPECT_THAT(settled.Untied(), IsEmpty());
  EXPECT_EQ(settled.proto().SerializeAsString(), TiedHead().SerializeAsString());
  ASSERT_THAT(settled.report().kept, SizeIs(1));
  EXPECT_EQ(settled.report().kept[0].tensor, "wte.weight");
  EXPECT_THAT(settled.report().kept[0].readers, ElementsAre("lm_head"));
}

TEST(SettleTies, PatternsUntieWhatAuthorsTie) {
  for (const std::string pattern : {"wte*", "lm_head", "all"}) {
    const Settled settled(TiedHead(), {.untie = {pattern}});
    EXPECT_THAT(settled.Untied(), ElementsAre("lm_head.weight")) << pattern;
    EXPECT_EQ(settled.node(1).input(0), "lm_head.weight");
    EXPECT_EQ(settled.node(0).input(0), "wte.weight");
  }
  EXPECT_THAT(Settled(TiedHead(), {.untie = {"head"}}).status().message(),
              HasSubstr("--untie 'head' matches no tensor that several modules share"));
  EXPECT_THAT(Settled(TiedHead(), {.untie = {"all", "wte*"}}).status().message(),
              HasSubstr("go alone"));
}

TEST(SettleTies, NoneKeepsWhatExportersMerged) {
  const Settled settled(FreshLayers(), {.untie = {"none"}});
  EXPECT_EQ(settled.proto().SerializeAsString(), FreshLayers().SerializeAsString());
  EXPECT_THAT(settled.report().kept, SizeIs(2));
}

// A layer with a fresh normalization, called three times: each call reads the same weights.
constexpr char kCalledThrice[] =
    "agraph (float[N, 2] x) => (float[N, 2] y)"
    " <float[2] ones = {1, 1}, float[2] zeros = {0, 0}, float[2, 2] e = {9, 8, 7, 6},"
    "  float[2, 2] w = {1, 2, 3, 4}> {"
    "  s = MatMul (x, e)"
    "  m0 = MatMul (s, w)  a0 = Add (m0, zeros)  n0 = LayerNormalization (a0, ones, zeros)"
    "  m1 = MatMul (n0, w)  a1 = Add (m1, zeros)  n1 = LayerNormalization (a1, ones, zeros)"
    "  m2 = MatMul (n1, w)  a2 = Add (m2, zeros)  y = LayerNormalization (a2, ones, zeros) }";

void ExpectOneLayerThrice(const Settled& settled) {
  ASSERT_TRUE(settled.status().ok()) << settled.status();
  EXPECT_THAT(settled.Untied(), SizeIs(1)) << "the bias of the product is not the normalization's";
  for (const int call : {1, 2}) {
    EXPECT_EQ(settled.node(2 + 3 * call).input(1), settled.node(2).input(1)) << call;
    EXPECT_EQ(settled.node(3 + 3 * call).input(1), settled.node(3).input(1)) << call;
    EXPECT_EQ(settled.node(3 + 3 * call).input(2), settled.node(3).input(2)) << call;
  }
  EXPECT_NE(settled.node(2).input(1), settled.node(3).input(2));
}

TEST(SettleTies, AModuleCalledSeveralTimesStaysOne) {
  onnx::ModelProto model = ModelOf(17, kCalledThrice);
  ExpectOneLayerThrice(Settled(model));
  for (int call = 0; call < 3; ++call) {
    // The second call's scopes, as some versions write them.
    const std::string number = call == 0 ? "" : "@" + std::to_string(call);
    SetModule(model, 1 + 3 * call, "layer.fc" + number);
    SetModule(model, 2 + 3 * call, "layer.fc" + number);
    SetModule(model, 3 + 3 * call, "layer.norm" + number);
  }
  const Settled named(model);
  ExpectOneLayerThrice(named);
  EXPECT_THAT(named.Untied(), ElementsAre(::testing::AnyOf("layer.fc.bias", "layer.norm.bias")));
  EXPECT_THAT(named.report().kept, IsEmpty()) << "a module called again is no tie";
}

// Two normalizations, each after a product, as TorchScript's exporter names nodes.
onnx::ModelProto TwoNormalizations(const std::string& first, const std::string& second) {
  onnx::ModelProto model =
      ModelOf(17,
              "agraph (float[N, 2] x) => (float[N, 2] y)"
              " <float[2] ones = {1, 1}, float[2] zeros = {0, 0},"
              "  float[2, 2] v = {1, 2, 3, 4}, float[2, 2] w = {5, 6, 7, 8}> {"
              "  p = MatMul (x, v)  n = LayerNormalization (p, ones, zeros)"
              "  q = MatMul (n, w)  y = LayerNormalization (q, ones, zeros) }");
  onnx::GraphProto& graph = *model.mutable_graph();
  Rename(graph, "ones", "layers.0.norm.weight");
  Rename(graph, "zeros", "layers.0.norm.bias");
  graph.mutable_node(1)->set_name("/layers.0/" + first + "/LayerNormalization");
  graph.mutable_node(3)->set_name("/layers.0/" + second + "/LayerNormalization");
  return model;
}

// The number of the second call made a module of it, with a tensor of its own.
TEST(SettleTies, TheSecondCallOfTorchScriptIsTheModule) {
  const onnx::ModelProto model = TwoNormalizations("norm", "norm_1");
  const Settled settled(model);
  EXPECT_THAT(settled.Untied(), IsEmpty());
  EXPECT_THAT(settled.report().kept, IsEmpty()) << "a module called again is no tie";
  EXPECT_EQ(settled.proto().SerializeAsString(), model.SerializeAsString());
}

// A LayerNormalization below opset 17, with an exponent and an epsilon of each call's own.
std::string TakenApart(const std::string& x, const std::string& y) {
  return absl::StrReplaceAll(
      "Y_mean = ReduceMean <axes = [-1]> (X)  Y_centred = Sub (X, Y_mean)"
      "  Y_two = Constant <value = float {2}> ()  Y_square = Pow (Y_centred, Y_two)"
      "  Y_variance = ReduceMean <axes = [-1]> (Y_square)"
      "  Y_epsilon = Constant <value = float {0.00001}> ()  Y_moved = Add (Y_variance, Y_epsilon)"
      "  Y_deviation = Sqrt (Y_moved)  Y_normal = Div (Y_centred, Y_deviation)"
      "  Y_scaled = Mul (Y_normal, ones)  Y = Add (Y_scaled, zeros)  ",
      {{"X", x}, {"Y", y}});
}

// The exponent and the epsilon counted as tensors of the module's own, so that no second call of a
// module with constants was known.
TEST(SettleTies, TheSecondCallMayHaveConstantsOfItsOwn) {
  const auto two_normalizations = [](const std::string& second) {
    onnx::ModelProto model =
        ModelOf(16,
                "agraph (float[N, 2] x) => (float[N, 2] y)"
                " <float[2] ones = {1, 1}, float[2] zeros = {0, 0},"
                "  float[2, 2] v = {1, 2, 3, 4}, float[2, 2] w = {5, 6, 7, 8}> {"
                "  p = MatMul (x, v)  " +
                    TakenApart("p", "n") + "q = MatMul (n, w)  " + TakenApart("q", "y") + "}");
    onnx::GraphProto& graph = *model.mutable_graph();
    std::string module;
    for (onnx::NodeProto& node : *graph.mutable_node()) {
      if (node.op_type() == "MatMul") {
        module = module.empty() ? "norm" : second;
      } else {
        node.set_name("/" + module + "/" + node.output(0));
      }
    }
    Rename(graph, "ones", "norm.weight");
    Rename(graph, "zeros", "norm.bias");
    return model;
  };
  const onnx::ModelProto model = two_normalizations("norm_1");
  const Settled settled(model);
  EXPECT_THAT(settled.Untied(), IsEmpty());
  EXPECT_THAT(settled.report().kept, IsEmpty());
  EXPECT_EQ(settled.proto().SerializeAsString(), model.SerializeAsString());
  EXPECT_THAT(Settled(two_normalizations("last_norm")).Untied(),
              UnorderedElementsAre("last_norm.weight", "last_norm.bias"));
}

TEST(SettleTies, AModuleWhoseNameEndsInANumberHasItsOwnTensors) {
  onnx::ModelProto named = TwoNormalizations("norm", "norm_1");
  *named.mutable_graph()->add_initializer() = FloatTensor("layers.0.norm_1.bias", {2}, 0, 0);
  named.mutable_graph()->mutable_node(3)->set_input(2, "layers.0.norm_1.bias");
  EXPECT_THAT(Settled(named).Untied(), ElementsAre("layers.0.norm_1.weight"))
      << "the name of its bias says that there is such a module";
  // Calls are counted from 1.
  EXPECT_THAT(Settled(TwoNormalizations("norm", "norm_2")).Untied(),
              UnorderedElementsAre("layers.0.norm_2.weight", "layers.0.norm_2.bias"));
}

// Two PRelu of one slope [1], each after a product.
onnx::ModelProto OneSlopeTwice() {
  return ModelOf(17,
                 "agraph (float[N, 2] x) => (float[N, 2] y)"
                 " <float[1] slope = {0.25}, float[2, 2] v = {1, 2, 3, 4},"
                 "  float[2, 2] w = {5, 6, 7, 8}> {"
                 "  p = MatMul (x, v)  a = PRelu (p, slope)"
                 "  q = MatMul (a, w)  y = PRelu (q, slope) }");
}

// One element counted as a tensor whose elements are all equal, which exporters merge.
TEST(SettleTies, AnActivationsOnlySlopeStaysOne) {
  const Settled settled(OneSlopeTwice());
  EXPECT_THAT(settled.Untied(), IsEmpty());
  ASSERT_THAT(settled.report().kept, SizeIs(1));
  EXPECT_THAT(settled.report().kept[0].readers, ElementsAre("y (PRelu)"));
  onnx::ModelProto called_twice = OneSlopeTwice();
  called_twice.mutable_graph()->mutable_node(1)->set_name("/act/PRelu");
  called_twice.mutable_graph()->mutable_node(3)->set_name("/act_1/PRelu");
  EXPECT_THAT(Settled(called_twice).Untied(), IsEmpty());
}

// Readers of one value were told apart by what comes after them, and that did not count as a guess.
TEST(SettleTies, AnOnlySlopeOfTwoReadersOfOneValueStaysOne) {
  const Settled settled(ModelOf(17,
                                "agraph (float[N, 2] x) => (float[N, 2] y, float[N, 2] z)"
                                " <float[1] slope = {0.25}, float[2, 2] v = {1, 2, 3, 4},"
                                "  float[2, 2] w = {5, 6, 7, 8}, float[2, 2] u = {9, 8, 7, 6}> {"
                                "  p = MatMul (x, v)  a = PRelu (p, slope)  b = PRelu (p, slope)"
                                "  y = MatMul (a, w)  z = MatMul (b, u) }"));
  EXPECT_THAT(settled.Untied(), IsEmpty());
  ASSERT_THAT(settled.report().kept, SizeIs(1));
  EXPECT_THAT(settled.report().kept[0].readers, ElementsAre("b (PRelu)"));
}

TEST(SettleTies, SlopesOfNamedActivationsAreUntied) {
  onnx::ModelProto model = OneSlopeTwice();
  model.mutable_graph()->mutable_node(1)->set_name("/act1/PRelu");
  model.mutable_graph()->mutable_node(3)->set_name("/act2/PRelu");
  EXPECT_THAT(Settled(model).Untied(), ElementsAre("act2.weight"));
}

TEST(SettleTies, BiasesOfOneElementAreUntiedByTheirWeights) {
  const onnx::ModelProto model =
      ModelOf(17,
              "agraph (float[N, 2] x) => (float[N, 1] y, float[N, 1] z)"
              " <float[1] b = {0}, float[2, 1] v = {1, 2}, float[2, 1] w = {5, 6}> {"
              "  y = Gemm (x, v, b)  z = Gemm (x, w, b) }");
  EXPECT_THAT(Settled(model).Untied(), ElementsAre("z.C"));
}

TEST(SettleTies, ASiameseTowerStaysOne) {
  const onnx::ModelProto model = ModelOf(17,
                                         "agraph (float[N, 2] a, float[N, 2] b) => (float[N, 2] y)"
                                         " <float[2] zeros = {0, 0}, float[2, 2] v = {1, 2, 3, 4},"
                                         "  float[2, 2] w = {5, 6, 7, 8}> {"
                                         "  p = Gemm (a, v, zeros)  q = Gemm (p, w, zeros)"
                                         "  r = Gemm (b, v, zeros)  s = Gemm (r, w, zeros)"
                                         "  y = Sub (q, s) }");
  const Settled settled(model);
  EXPECT_THAT(settled.Untied(), SizeIs(1));
  EXPECT_EQ(settled.node(0).input(2), settled.node(2).input(2));
  EXPECT_EQ(settled.node(1).input(2), settled.node(3).input(2));
  EXPECT_NE(settled.node(0).input(2), settled.node(1).input(2));
}

TEST(SettleTies, TwoNormalizationsOfOneValueAreTwoModules) {
  const onnx::ModelProto model =
      ModelOf(17,
              "agraph (float[N, 2] x) => (float[N, 2] y)"
              " <float[2] ones = {1, 1}, float[2] zeros = {0, 0}, float[2, 2] e = {9, 8, 7, 6},"
              "  float[2, 2] v = {1, 2, 3, 4}, float[2, 2] w = {5, 6, 7, 8}> {"
              "  h = MatMul (x, e)"
              "  n = LayerNormalization (h, ones, zeros)  p = MatMul (n, v)"
              "  m = LayerNormalization (h, ones, zeros)  q = MatMul (m, w)"
              "  y = Add (p, q) }");
  const Settled settled(model);
  EXPECT_NE(settled.node(1).input(1), settled.node(3).input(1));
  EXPECT_NE(settled.node(1).input(2), settled.node(3).input(2));
}

// The name was taken for the place of a use, which an output has not.
TEST(SettleTies, ANameMaySoundLikeAPlace) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 2] x) => (float[N, 2] y, float[2] ones)"
                                   " <float[2] ones = {1, 1}> {"
                                   "  y = LayerNormalization (x, ones) }");
  Rename(*model.mutable_graph(), "ones", "behind x");
  model.mutable_graph()->mutable_output(1)->set_name("behind x");
  EXPECT_TRUE(Settled(model).status().ok());
}

TEST(SettleTies, AVectorWithDifferentElementsIsATie) {
  const onnx::ModelProto model = ModelOf(17,
                                         "agraph (float[N, 2] x) => (float[N, 2] y)"
                                         " <float[2] b = {0.5, 0.25}, float[2, 2] v = {1, 2, 3, 4},"
                                         "  float[2, 2] w = {5, 6, 7, 8}> {"
                                         "  h = Gemm (x, v, b)  y = Gemm (h, w, b) }");
  const Settled settled(model);
  EXPECT_THAT(settled.Untied(), IsEmpty());
  ASSERT_THAT(settled.report().kept, SizeIs(1));
  EXPECT_THAT(settled.report().kept[0].readers, ElementsAre("y (Gemm)"));
}

TEST(SettleTies, ZeroedMatricesOfTwoModulesAreUntied) {
  const onnx::ModelProto model = ModelOf(17,
                                         "agraph (float[N, 2] x) => (float[N, 2] y)"
                                         " <float[2, 2] zero = {0, 0, 0, 0},"
                                         "  float[2, 2] v = {1, 2, 3, 4}> {"
                                         "  a = MatMul (x, v)  c = Relu (a)  h = MatMul (c, zero)"
                                         "  k = MatMul (h, v)  l = Relu (k)"
                                         "  y = MatMul (l, zero) }");
  const Settled settled(model);
  EXPECT_THAT(settled.Untied(), IsEmpty()) << "the same weight before both: one module";
  onnx::ModelProto other = model;
  other.mutable_graph()->mutable_node(3)->set_input(1, "u");
  *other.mutable_graph()->add_initializer() = FloatTensor("u", {2, 2}, 3, 1);
  EXPECT_THAT(Settled(other).Untied(), ElementsAre("y.B"));
}

// ---- Running statistics.

TEST(SettleTies, RunningStatisticsAlwaysHaveTensorsOfTheirOwn) {
  const char* const kBodies[] = {
      "<float[2] s = {1, 1}, float[2] b = {0, 0}>",
      "<float[2] s = {1, 3}, float[2] b = {2, 5}>",  // not fresh any more
  };
  for (const char* const body : kBodies) {
    const onnx::ModelProto model =
        ModelOf(17, std::string("agraph (float[N, 2] x) => (float[N, 2] y) ") + body +
                        "{ y = BatchNormalization (x, s, b, b, s) }");
    const std::vector<std::vector<std::string>> choices = {{}, {"none"}};
    for (const std::vector<std::string>& untie : choices) {
      const Settled settled(model, {.untie = untie});
      EXPECT_THAT(settled.Untied(), UnorderedElementsAre("y.mean", "y.var"));
      EXPECT_THAT(settled.node(0).input(), ElementsAre("x", "s", "b", "y.mean", "y.var"));
      ASSERT_THAT(settled.report().untied, SizeIs(2));
      EXPECT_TRUE(settled.report().untied[0].is_statistic);
    }
  }
}

TEST(SettleTies, TheStatisticsOfAModuleCalledTwiceStayOne) {
  const onnx::ModelProto model = ModelOf(
      17,
      "agraph (float[N, 2] a, float[N, 2] b) => (float[N, 2] y)"
      " <float[2] s = {1, 2}, float[2] c = {3, 4}, float[2] m = {0, 0}, float[2] v = {1, 1}>"
      "{ p = BatchNormalization (a, s, c, m, v)  q = BatchNormalization (b, s, c, m, v)"
      "  y = Sub (p, q) }");
  EXPECT_THAT(Settled(model).Untied(), IsEmpty());
}

TEST(SettleTies, ConstantsOfADecomposedGroupNormAreLeftAlone) {
  const onnx::ModelProto model =
      ModelOf(17,
              "agraph (float[N, 4, 2] x) => (float[A, B, C] y)"
              " <float[2] ones = {1, 1}, float[2] zeros = {0, 0}, int64[3] g = {0, 2, -1},"
              "  int64[3] back = {0, 4, 2}> {"
              "  a = Reshape (x, g)  b = InstanceNormalization (a, ones, zeros)"
              "  c = Reshape (b, back)  d = Reshape (c, g)"
              "  e = InstanceNormalization (d, ones, zeros)  y = Reshape (e, back) }");
  EXPECT_THAT(Settled(model).Untied(), IsEmpty());
}

// wav2vec 2.0: a group for each channel, so that nothing is reshaped behind the normalization.
TEST(SettleTies, ConstantsOfAGroupNormOfSingleChannelsTakeNoParametersName) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 4, 2] x) => (float[A, B, C] y)"
                                   " <float[4] ones = {1, 1, 1, 1}, float[4] zeros = {0, 0, 0, 0},"
                                   "  int64[3] g = {0, 4, -1}, float[4, 1] v = {1, 1, 1, 1}> {"
                                   "  a = Reshape (x, g)"
                                   "  b = InstanceNormalization (a, ones, zeros)"
                                   "  c = Mul (b, v)  d = Transpose <perm = [0, 2, 1]> (c)"
                                   "  y = LayerNormalization (d, ones, zeros) }");
  SetModule(model, 1, "group");
  SetModule(model, 4, "last");
  Rename(*model.mutable_graph(), "ones", "last.weight");
  Rename(*model.mutable_graph(), "zeros", "last.bias");
  SetSignature(model, {"group.weight", "group.bias", "last.weight", "last.bias"});
  const Settled settled(model);
  ASSERT_TRUE(settled.status().ok()) << settled.status();
  EXPECT_THAT(settled.Untied(), SizeIs(2));
  EXPECT_THAT(settled.Untied(), Not(Contains("group.weight")));
  EXPECT_THAT(settled.Untied(), Not(Contains("group.bias")));
}

// ---- The file.

TEST(SettleTies, UnknownFieldsSurvive) {
  onnx::ModelProto model = FreshLayers();
  model.GetReflection()->MutableUnknownFields(&model)->AddLengthDelimited(999, "future");
  onnx::NodeProto& node = *model.mutable_graph()->mutable_node(2);
  node.GetReflection()->MutableUnknownFields(&node)->AddVarint(77, 5);
  onnx::TensorProto& ones = *model.mutable_graph()->mutable_initializer(0);
  ones.GetReflection()->MutableUnknownFields(&ones)->AddVarint(66, 4);
  const Settled settled(model);
  ASSERT_THAT(settled.Untied(), SizeIs(4));
  const auto unknown = [](const auto& message) {
    return message.GetReflection()->GetUnknownFields(message).field_count();
  };
  EXPECT_EQ(unknown(settled.proto()), 1);
  EXPECT_EQ(unknown(settled.node(2)), 1);
  int with_field = 0;
  for (const auto& tensor : settled.proto().graph().initializer()) with_field += unknown(tensor);
  EXPECT_EQ(with_field, 2) << "the tensor's, and the one of its copy";
}

TEST(SettleTies, TheExporterWritesEachTensor) {
  const Settled settled(FreshLayers());
  const auto imported = ImportModel(settled.file());
  ASSERT_TRUE(imported.ok()) << imported.status();
  const Tensor trained = Tensor::Of<float>({2}, std::vector<float>{3, 4});
  const auto exported = ExportTrained(*imported, {{"layers.1.norm.weight", trained}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto back = ModelFile::Parse(exported->bytes, "back.onnx");
  ASSERT_TRUE(back.ok()) << back.status();
  std::map<std::string, std::vector<float>> values;
  for (const onnx::TensorProto& tensor : (*back).proto()->graph().initializer()) {
    values[tensor.name()] = {tensor.float_data().begin(), tensor.float_data().end()};
  }
  EXPECT_THAT(values["layers.1.norm.weight"], ElementsAre(3, 4));
  EXPECT_THAT(values["layers.0.norm.weight"], ElementsAre(1, 1));
}

TEST(SettleTies, OldFilesListNewTensorsAmongTheirInputs) {
  onnx::ModelProto model = ModelOf(8,
                                   "agraph (float[N, 2] x) => (float[N, 2] y)"
                                   " <float[2] b = {0, 0}, float[2, 2] v = {1, 2, 3, 4},"
                                   "  float[2, 2] w = {5, 6, 7, 8}> {"
                                   "  h = Gemm (x, v, b)  y = Gemm (h, w, b) }");
  model.set_ir_version(3);
  const Settled settled(model);
  std::vector<std::string> inputs;
  for (const auto& input : settled.proto().graph().input()) inputs.push_back(input.name());
  EXPECT_THAT(inputs, Contains("y.C"));
}

// ---- Files that nobody trusts.

// 1 MiB of zeros with 300 readers asked for 300 MiB, and 100,000 readers for 100 GiB.
TEST(SettleTies, AFileCannotAskForAnyNumberOfCopies) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[262144] x) => (float[262144] y)"
                                   " { y = Add (x, zeros) }");
  onnx::GraphProto& graph = *model.mutable_graph();
  *graph.add_initializer() = FloatTensor("zeros", {262144}, 0, 0);
  graph.mutable_node(0)->set_name("/m0/Add");
  for (int i = 1; i < 300; ++i) {
    const std::string number = std::to_string(i);
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type("Add");
    node.set_name("/m" + number + "/Add");
    node.add_input("x");
    node.add_input("zeros");
    node.add_output("y" + number);
  }
  const Settled settled(model);
  EXPECT_TRUE(absl::IsResourceExhausted(settled.status())) << settled.status();
  EXPECT_THAT(settled.status().message(),
              HasSubstr("model 'test.onnx': to give each module a tensor of its own would add more "
                        "than 192 MiB to a file of 1"));
  EXPECT_THAT(settled.status().message(), HasSubstr("at tensor 'zeros' of 1.00 MiB; --untie none"));
  EXPECT_TRUE(Settled(model, {.untie = {"none"}}).status().ok());
}

// Each copy is called after the matrix beside it, whose name may have 64 KiB and is in the file
// twice. Names did not count: 100,000 readers asked for 6 GiB of them.
TEST(SettleTies, AFileCannotAskForAnyNumberOfNames) {
  constexpr int kReaders = 188;
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 2] x) => (float[N, 262144] y0)"
                                   " <float[2, 1] w = {1, 2}> { p = MatMul (x, w) }");
  onnx::GraphProto& graph = *model.mutable_graph();
  *graph.add_initializer() = FloatTensor("zeros", {262144}, 0, 0);
  for (int i = 0; i < kReaders; ++i) {
    const std::string number = std::to_string(i);
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type("Add");
    node.set_name("/m" + number + "/Add");
    node.add_input("p");
    node.add_input("zeros");
    node.add_output("y" + number);
  }
  // The numbers of the copies fit, at 1 MiB each; 64 KiB a copy do not.
  const size_t numbers = (kReaders - 1) * graph.initializer(1).ByteSizeLong();
  ASSERT_LT(numbers, CopyBudget::kMinCopyBytes);
  ASSERT_GT(numbers + kReaders * size_t{60'000}, CopyBudget::kMinCopyBytes);
  Rename(graph, "w", std::string(60'000, 'm') + ".weight");
  const Settled settled(model);
  EXPECT_TRUE(absl::IsResourceExhausted(settled.status())) << settled.status();
  EXPECT_THAT(settled.status().message(), HasSubstr("at tensor 'zeros' of 1.00 MiB; --untie none"));
}

// Concat in front of a normalization, with so many other inputs before the product.
std::string Concatenation(const std::string& output, const std::string& other, int others,
                          const std::string& product) {
  std::string text = output + " = Concat <axis = 0> (";
  for (int i = 0; i < others; ++i) text += other + ", ";
  return text + product + ")  ";
}

// Every use of a tensor looked at all inputs of such a node.
TEST(SettleTies, TheSearchForAWeightIsBounded) {
  const auto layer_called_twice = [](int others) {
    return ModelOf(17,
                   "agraph (float[N, 2] x) => (float[M, 2] y)"
                   " <float[2] ones = {1, 1}, float[2] zeros = {0, 0},"
                   "  float[2, 2] w = {1, 2, 3, 4}> {"
                   "  p = MatMul (x, w)  " +
                       Concatenation("c", "x", others, "p") +
                       "n = LayerNormalization (c, ones, zeros)  q = MatMul (n, w)  " +
                       Concatenation("d", "x", others, "q") +
                       "y = LayerNormalization (d, ones, zeros) }");
  };
  EXPECT_THAT(Settled(layer_called_twice(100)).Untied(), IsEmpty())
      << "the same weight before both: one module";
  EXPECT_THAT(Settled(layer_called_twice(6000)).Untied(), SizeIs(2)) << "it is not looked for";
}

TEST(SettleTies, AFileWithItsOwnTrainingStaysAsItIs) {
  onnx::ModelProto model = FreshLayers();
  model.add_training_info();
  EXPECT_THAT(Settled(model).Untied(), IsEmpty());
  EXPECT_THAT(Settled(model, {.untie = {"all"}}).status().message(), HasSubstr("training_info"));
}

}  // namespace
}  // namespace weft::testing
