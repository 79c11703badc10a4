#include "onnx_import/edit/tie_evidence.h"

#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/ties.h"
#include "onnx_import/model_file.h"
#include "onnx_import/testing/settled_model.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Two layers of one weight and one bias, whose numbers differ.
onnx::ModelProto TwoLayers() {
  return ModelOf(17,
                 "agraph (float[N, 2] x) => (float[N, 2] y)"
                 " <float[2, 2] w = {1, 2, 3, 4}, float[2] b = {5, 6}> {"
                 "  p0 = MatMul (x, w)  a0 = Add (p0, b)"
                 "  p1 = MatMul (a0, w)  y = Add (p1, b) }");
}

// The same as torch.export writes it, the bias called `bias`.
onnx::ModelProto ExportedLayers(const std::string& bias) {
  onnx::ModelProto model = TwoLayers();
  for (int node = 0; node < 4; ++node) {
    SetModule(model, node, node < 2 ? "layers.0.fc" : "layers.1.fc");
  }
  SetSignature(
      model, {"layers.0.fc.weight", "layers.0.fc.bias", "layers.1.fc.weight", "layers.1.fc.bias"});
  Rename(*model.mutable_graph(), "b", bias);
  Rename(*model.mutable_graph(), "w", "val_3");  // transposed
  return model;
}

TEST(TieEvidence, ATensorCalledByItsFirstNameWasMergedByItsValue) {
  const Settled settled(ExportedLayers("layers.0.fc.bias"));
  ASSERT_TRUE(settled.status().ok()) << settled.status();
  EXPECT_THAT(settled.Untied(), UnorderedElementsAre("layers.1.fc.bias", "layers.1.fc.weight"))
      << "the bias says it, and the weight has no name";
  EXPECT_NE(settled.node(0).input(1), settled.node(2).input(1));
  for (const UntiedTensor& untied : settled.report().untied) EXPECT_TRUE(untied.is_told);
}

TEST(TieEvidence, ATensorCalledByItsLastNameIsTheAuthorsTie) {
  const Settled settled(ExportedLayers("layers.1.fc.bias"));
  EXPECT_THAT(settled.Untied(), IsEmpty());
  EXPECT_THAT(settled.report().kept, SizeIs(2));
}

// Fresh biases tell it too: they were untied because their elements are equal.
TEST(TieEvidence, EqualElementsOfATieStayOne) {
  onnx::ModelProto model = ExportedLayers("layers.1.fc.bias");
  for (onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer()) {
    if (tensor.name() == "layers.1.fc.bias") tensor = FloatTensor(tensor.name(), {2}, 0, 0);
  }
  EXPECT_THAT(Settled(model).Untied(), IsEmpty());
}

TEST(TieEvidence, AFileWithoutASignatureIsJudgedByItsValues) {
  onnx::ModelProto model = ExportedLayers("layers.0.fc.bias");
  model.mutable_graph()->clear_metadata_props();
  EXPECT_THAT(Settled(model).Untied(), IsEmpty());
}

// As TorchScript's exporter names nodes, with Identity nodes over equal tensors.
onnx::ModelProto ScriptedLayers(const std::string& second_bias) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 2] x) => (float[N, 2] y)"
                                   " <float[2, 2] w = {1, 2, 3, 4}, float[2] b = {5, 6}> {"
                                   "  w1 = Identity (w)  b1 = Identity (b)"
                                   "  p0 = MatMul (x, w)  a0 = Add (p0, b)"
                                   "  p1 = MatMul (a0, w1)  y = Add (p1, b1) }");
  onnx::GraphProto& graph = *model.mutable_graph();
  const char* const names[] = {"Identity_0",       "Identity_1",          "/layers.0/fc/MatMul",
                               "/layers.0/fc/Add", "/layers.1/fc/MatMul", "/layers.1/fc/Add"};
  for (int i = 0; i < 6; ++i) graph.mutable_node(i)->set_name(names[i]);
  Rename(graph, "w", "onnx::MatMul_7");
  Rename(graph, "w1", "onnx::MatMul_8");
  Rename(graph, "b", "layers.0.fc.bias");
  Rename(graph, "b1", second_bias);
  return model;
}

TEST(TieEvidence, AnIdentityWithTheNameOfAParameterIsAnother) {
  const Settled settled(ScriptedLayers("layers.1.fc.bias"));
  ASSERT_TRUE(settled.status().ok()) << settled.status();
  EXPECT_THAT(settled.Untied(), UnorderedElementsAre("layers.1.fc.bias", "onnx::MatMul_8"));
}

TEST(TieEvidence, AnIdentityWithAMadeUpNameSaysNothing) {
  const Settled settled(ScriptedLayers("onnx::Add_9"));
  EXPECT_THAT(settled.Untied(), IsEmpty());
}

// Normalizations are apart in any case; weights are taken for copies only if all are equal.
TEST(TieEvidence, LayersThatShareOneWeightOfTwoAreNoCopies) {
  for (const bool shares_all : {true, false}) {
    onnx::ModelProto model =
        ModelOf(17,
                "agraph (float[N, 2] x) => (float[N, 2] y)"
                " <float[2, 2] w = {1, 2, 3, 4}, float[2, 2] u = {5, 6, 7, 8},"
                "  float[2, 2] v = {9, 8, 7, 6}, float[2] ones = {1, 1}> {"
                "  p0 = MatMul (x, w)  q0 = MatMul (p0, u)  n0 = RMSNormalization (q0, ones)"
                "  p1 = MatMul (n0, w)  q1 = MatMul (p1, v)  y = RMSNormalization (q1, ones) }");
    onnx::GraphProto& graph = *model.mutable_graph();
    if (shares_all) graph.mutable_node(4)->set_input(1, "u");
    const char* const modules[] = {"a", "b", "norm"};
    for (int i = 0; i < 6; ++i) {
      SetModule(model, i, "layers." + std::to_string(i / 3) + "." + modules[i % 3]);
    }
    SetSignature(model, {"layers.0.norm.weight", "layers.1.norm.weight", "layers.0.a.weight",
                         "layers.1.a.weight"});
    Rename(graph, "ones", "layers.0.norm.weight");
    Rename(graph, "w", "val_1");
    Rename(graph, "u", "val_2");
    Rename(graph, "v", "val_3");
    const Settled settled(model);
    EXPECT_THAT(settled.Untied(), SizeIs(shares_all ? 3 : 1)) << shares_all;
  }
}

// A constant that was merged with a scale lies in a module whose own scale is elsewhere.
TEST(TieEvidence, AConstantOfEqualElementsIsNoOtherNameOfAScale) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 2, 2] x) => (float[N, 2, 2] y)"
                                   " <float[2] ones = {1, 1}, float[2] zeros = {0, 0}> {"
                                   "  h = InstanceNormalization (x, ones, zeros)"
                                   "  y = LayerNormalization (h, ones, zeros) }");
  SetModule(model, 0, "stem.norm");
  SetModule(model, 1, "head.norm");
  SetSignature(model, {"stem.norm.weight", "head.norm.weight"});
  Rename(*model.mutable_graph(), "ones", "head.norm.weight");
  Rename(*model.mutable_graph(), "zeros", "head.norm.bias");
  const Settled settled(model);
  EXPECT_NE(settled.node(0).input(1), settled.node(1).input(1));
}

// Two biases of one module, both of zeros: which of them the tensor was is not said.
TEST(TieEvidence, ADoubtfulNameDecidesNothing) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 2] x) => (float[N, 2] y)"
                                   " <float[2, 2] w = {1, 2, 3, 4}, float[2, 2] v = {5, 6, 7, 8},"
                                   "  float[2] b = {0, 0}> {"
                                   "  h = Gemm (x, w, b)  y = Gemm (h, v, b) }");
  SetModule(model, 0, "cell");
  SetModule(model, 1, "cell");
  SetSignature(model, {"cell.w", "cell.first", "cell.v", "cell.second"});
  Rename(*model.mutable_graph(), "w", "cell.w");
  Rename(*model.mutable_graph(), "v", "cell.v");
  Rename(*model.mutable_graph(), "b", "cell.first");
  EXPECT_THAT(Settled(model).Untied(), SizeIs(1)) << "its elements are equal";
}

// A module of many weights with one bias. To look through its parameters for each took minutes.
TEST(TieEvidence, ManyReadersInALargeModuleTakeLinearTime) {
  constexpr int kReaders = 40'000;
  onnx::ModelProto model =
      ModelOf(17, "agraph (float[N, 2] x) => (float[N, 2] y) { y = Relu (x) }");
  onnx::GraphProto& graph = *model.mutable_graph();
  *graph.add_initializer() = FloatTensor("m.bias", {2}, 5, 1);
  std::vector<std::string> parameters = {"m.bias"};
  for (int i = 0; i < kReaders; ++i) {
    parameters.push_back("m.w" + std::to_string(i));
    *graph.add_initializer() = FloatTensor(parameters.back(), {2, 2}, 1, 1);
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type("Gemm");
    node.add_input("x");
    node.add_input(parameters.back());
    node.add_input("m.bias");
    node.add_output("y" + std::to_string(i));
    SetModule(model, i + 1, "m");
  }
  SetSignature(model, parameters);
  const auto file = ModelFile::Parse(model.SerializeAsString(), "test.onnx");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto begin = std::chrono::steady_clock::now();
  const auto settled = SettleTies(*file);
  ASSERT_TRUE(settled.ok()) << settled.status();
  EXPECT_THAT(settled->report.untied, IsEmpty());
  EXPECT_THAT(settled->report.kept, SizeIs(1));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

}  // namespace
}  // namespace weft::testing
