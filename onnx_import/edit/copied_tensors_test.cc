#include "onnx_import/edit/copied_tensors.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/ties.h"
#include "onnx_import/testing/settled_model.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

onnx::ModelProto CopiedHead() {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (int64[N] ids) => (float[N, 40] y)"
                                   " { row = Gather (wte, ids)  y = MatMul (row, head) }");
  *model.mutable_graph()->add_initializer() = FloatTensor("head", {32, 40}, 0, 0);
  *model.mutable_graph()->add_initializer() = FloatTensor("wte", {40, 32}, 1, 0.5f);
  std::string& bytes = *model.mutable_graph()->mutable_initializer(0)->mutable_raw_data();
  const auto* table =
      reinterpret_cast<const float*>(model.graph().initializer(1).raw_data().data());
  auto* head = reinterpret_cast<float*>(bytes.data());
  for (int i = 0; i < 32; ++i) {
    for (int j = 0; j < 40; ++j) head[i * 40 + j] = table[j * 32 + i];
  }
  return model;
}

TEST(CopiedTensors, FindsATransposedCopyAndTiesItWhenAsked) {
  const Settled offered(CopiedHead());
  ASSERT_THAT(offered.report().copies, SizeIs(1));
  EXPECT_EQ(offered.report().copies[0].tensor, "wte");
  EXPECT_EQ(offered.report().copies[0].copy, "head");
  EXPECT_TRUE(offered.report().copies[0].transposed);
  EXPECT_EQ(offered.proto().SerializeAsString(), CopiedHead().SerializeAsString());
  for (const std::string tie : {"auto", "wte=head"}) {
    const Settled settled(CopiedHead(), {.tie = {tie}});
    ASSERT_TRUE(settled.status().ok()) << settled.status();
    EXPECT_THAT(settled.Initializers(), ElementsAre("wte"));
    EXPECT_THAT(settled.Operators(), ElementsAre("Transpose", "Gather", "MatMul"));
    EXPECT_THAT(settled.node(0).input(), ElementsAre("wte"));
    EXPECT_THAT(settled.node(0).output(), ElementsAre("head"));
    EXPECT_THAT(settled.node(0).attribute(0).ints(), ElementsAre(1, 0));
    EXPECT_THAT(settled.report().copies, IsEmpty());
    EXPECT_THAT(settled.report().tied, SizeIs(1));
  }
}

TEST(CopiedTensors, OneElementMakesItNoCopy) {
  onnx::ModelProto model = CopiedHead();
  // Off the diagonal, which is sampled.
  std::string& bytes = *model.mutable_graph()->mutable_initializer(0)->mutable_raw_data();
  reinterpret_cast<float*>(bytes.data())[7] += 1;
  EXPECT_THAT(Settled(model).report().copies, IsEmpty());
  EXPECT_THAT(Settled(model, {.tie = {"wte=head"}}).status().message(),
              HasSubstr("hold different numbers"));
}

TEST(CopiedTensors, EqualCopiesAreTiedByIdentity) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 32] x) => (float[N, 32] y)"
                                   " { h = MatMul (x, a)  y = MatMul (h, b) }");
  *model.mutable_graph()->add_initializer() = FloatTensor("a", {32, 32}, 1, 0.5f);
  *model.mutable_graph()->add_initializer() = FloatTensor("b", {32, 32}, 1, 0.5f);
  const Settled settled(model, {.tie = {"a=b"}});
  EXPECT_THAT(settled.Operators(), ElementsAre("Identity", "MatMul", "MatMul"));
  *model.mutable_graph()->mutable_initializer(0) = FloatTensor("a", {32, 32}, 0, 0);
  *model.mutable_graph()->mutable_initializer(1) = FloatTensor("b", {32, 32}, 0, 0);
  EXPECT_THAT(Settled(model).report().copies, IsEmpty()) << "equal values say nothing";
}

TEST(CopiedTensors, RefusesTiesThatMakeNoSense) {
  const auto refusal = [](std::vector<std::string> ties) {
    return std::string(Settled(CopiedHead(), {.tie = std::move(ties)}).status().message());
  };
  EXPECT_THAT(refusal({"wte"}), HasSubstr("--tie wte: expected TENSOR=COPY"));
  EXPECT_THAT(refusal({"wte=hed"}), HasSubstr("no float tensor 'hed', did you mean 'head'?"));
  EXPECT_THAT(refusal({"wte=wte"}), HasSubstr("one tensor already"));
  EXPECT_THAT(refusal({"wte=head", "wte=head"}), HasSubstr("'head' is tied already"));
  EXPECT_THAT(refusal({"wte=head", "head=wte"}), HasSubstr("is itself tied"));
}

// The head as exporters call a transposed weight.
onnx::ModelProto FoldedHead(const std::string& table) {
  onnx::ModelProto model = CopiedHead();
  Rename(*model.mutable_graph(), "head", "onnx::MatMul_9");
  Rename(*model.mutable_graph(), "wte", table);
  return model;
}

TEST(CopiedTensors, WhatTheExporterTransposedIsOneWithoutBeingAsked) {
  const Settled settled(FoldedHead("wte.weight"));
  ASSERT_TRUE(settled.status().ok()) << settled.status();
  EXPECT_THAT(settled.Initializers(), ElementsAre("wte.weight"));
  EXPECT_THAT(settled.Operators(), ElementsAre("Transpose", "Gather", "MatMul"));
  ASSERT_THAT(settled.report().tied, SizeIs(1));
  EXPECT_FALSE(settled.report().tied[0].is_asked);
  EXPECT_THAT(settled.report().copies, IsEmpty());
}

TEST(CopiedTensors, AParameterWithANameOfItsOwnIsOnlyOffered) {
  onnx::ModelProto model = CopiedHead();
  Rename(*model.mutable_graph(), "head", "lm_head.weight");
  const Settled settled(model);
  EXPECT_THAT(settled.report().tied, IsEmpty());
  EXPECT_THAT(settled.report().copies, SizeIs(1));
}

TEST(CopiedTensors, TheUserMayKeepThemApart) {
  for (const std::string word : {"all", "none", "onnx::*", "wte*"}) {
    const Settled settled(FoldedHead("wte.weight"), {.untie = {word}});
    EXPECT_THAT(settled.report().tied, IsEmpty()) << word;
    EXPECT_THAT(settled.Initializers(), SizeIs(2)) << word;
  }
}

// A pattern may name a copy and, by its module, a tensor that several modules share.
TEST(CopiedTensors, APatternThatNamesACopyStillUntiesWhatIsShared) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (int64[N] ids) => (float[N, 40] y)"
                                   " { row = Gather (wte, ids)  p = MatMul (row, mix)"
                                   "   q = MatMul (p, mix)  y = MatMul (q, head) }");
  const onnx::ModelProto copied = FoldedHead("wte.weight");
  *model.mutable_graph()->mutable_initializer() = copied.graph().initializer();
  *model.mutable_graph()->add_initializer() = FloatTensor("mix", {32, 32}, 1, 0.25f);
  Rename(*model.mutable_graph(), "wte", "wte.weight");
  Rename(*model.mutable_graph(), "head", "onnx::MatMul_9");
  SetModule(model, 1, "first");
  SetModule(model, 2, "wte.second");
  EXPECT_THAT(Settled(model).Untied(), IsEmpty());
  const Settled settled(model, {.untie = {"wte.*"}});
  ASSERT_TRUE(settled.status().ok()) << settled.status();
  EXPECT_THAT(settled.Untied(), SizeIs(1));
  EXPECT_THAT(settled.report().tied, IsEmpty());
}

// Read twice by one module, it is shared with none.
TEST(CopiedTensors, AModuleThatReadsACopiedTensorTwiceIsNoReasonToRefuseItsName) {
  onnx::ModelProto model = FoldedHead("wte.weight");
  onnx::NodeProto& again = *model.mutable_graph()->add_node();
  again = model.graph().node(0);
  again.clear_name();
  again.set_output(0, "row2");
  SetModule(model, 0, "wte");
  SetModule(model, 2, "wte");
  const Settled settled(model, {.untie = {"wte*"}});
  ASSERT_TRUE(settled.status().ok()) << settled.status();
  EXPECT_THAT(settled.report().tied, IsEmpty());
}

// Deep copies of a layer, of which one computes by Gemm with its parameter, and another by MatMul
// with what the exporter transposed: their biases, which TorchScript merged, tell that they are
// two.
TEST(CopiedTensors, ACopyInACopiedLayerIsAnotherParameter) {
  for (const bool are_copies : {true, false}) {
    onnx::ModelProto model = ModelOf(17,
                                     "agraph (float[N, 8] x) => (float[N, 8] y)"
                                     " { b1 = Identity (b)  h = Gemm (x, w, b)"
                                     "   p = MatMul (h, t)  y = Add (p, b1) }");
    onnx::GraphProto& graph = *model.mutable_graph();
    *graph.add_initializer() = FloatTensor("w", {8, 8}, 1, 0.5f);
    *graph.add_initializer() = FloatTensor("t", {8, 8}, 1, 0.5f);
    *graph.add_initializer() = FloatTensor("b", {8}, 1, 0.25f);
    const char* const names[] = {"Identity_0", "/layers.0/fc/Gemm", "/layers.1/fc/MatMul",
                                 "/layers.1/fc/Add"};
    for (int i = 0; i < 4; ++i) graph.mutable_node(i)->set_name(names[i]);
    Rename(graph, "w", "layers.0.fc.weight");
    Rename(graph, "t", "onnx::MatMul_9");
    Rename(graph, "b", "layers.0.fc.bias");
    Rename(graph, "b1", are_copies ? "layers.1.fc.bias" : "onnx::Add_7");
    EXPECT_THAT(Settled(model).report().tied, SizeIs(are_copies ? 0 : 1)) << are_copies;
  }
}

// The same of torch.export, whose names leave it open which of both a second layer's weight is.
TEST(CopiedTensors, ACopyInACopiedLayerBeforeIsAnotherParameter) {
  for (const bool are_copies : {true, false}) {
    onnx::ModelProto model = ModelOf(17,
                                     "agraph (float[N, 8] x) => (float[N, 8] y)"
                                     " { p = MatMul (x, t)  h = Add (p, b)  y = Gemm (h, w, b) }");
    onnx::GraphProto& graph = *model.mutable_graph();
    *graph.add_initializer() = FloatTensor("w", {8, 8}, 1, 0.5f);
    *graph.add_initializer() = FloatTensor("t", {8, 8}, 1, 0.5f);
    *graph.add_initializer() = FloatTensor("b", {8}, 1, 0.25f);
    for (int i = 0; i < 3; ++i) SetModule(model, i, i < 2 ? "layers.0.fc" : "layers.1.fc");
    SetSignature(model, {"layers.0.fc.weight", "layers.0.fc.bias", "layers.1.fc.weight",
                         "layers.1.fc.bias"});
    Rename(graph, "w", "layers.1.fc.weight");
    Rename(graph, "t", "val_3");
    Rename(graph, "b", are_copies ? "layers.0.fc.bias" : "layers.1.fc.bias");
    EXPECT_THAT(Settled(model).report().tied, SizeIs(are_copies ? 0 : 1)) << are_copies;
  }
}

// torch.export calls a tied parameter by its last name.
TEST(CopiedTensors, TheSignatureTellsATieFromAnEqualParameter) {
  for (const bool is_tied : {true, false}) {
    onnx::ModelProto model = FoldedHead(is_tied ? "head.weight" : "wte.weight");
    SetModule(model, 0, "wte");
    SetModule(model, 1, "head");
    SetSignature(model, {"wte.weight", "head.weight"});
    EXPECT_THAT(Settled(model).report().tied, SizeIs(is_tied ? 1 : 0)) << is_tied;
  }
}

// A module that is called twice, whose weight the exporter transposed twice.
TEST(CopiedTensors, CopiesInOneModuleAreOne) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 32] x) => (float[N, 32] y)"
                                   " { h = MatMul (x, val_1)  y = MatMul (h, val_2) }");
  for (const char* const name : {"val_1", "val_2"}) {
    *model.mutable_graph()->add_initializer() = FloatTensor(name, {32, 32}, 1, 0.5f);
  }
  EXPECT_THAT(Settled(model).report().tied, IsEmpty()) << "nothing tells of what they are";
  SetModule(model, 0, "layer.fc");
  SetModule(model, 1, "layer.fc@1");
  EXPECT_THAT(Settled(model).report().tied, SizeIs(1));
}

TEST(CopiedTensors, SmallTensorsAreCopiesOnlyIfTheirNumbersDiffer) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 8] x) => (float[N, 8] y)"
                                   " { h = MatMul (x, fc)  y = MatMul (h, val_2) }");
  *model.mutable_graph()->add_initializer() = FloatTensor("fc", {8, 8}, 1, 0.5f);
  *model.mutable_graph()->add_initializer() = FloatTensor("val_2", {8, 8}, 1, 0.5f);
  EXPECT_THAT(Settled(model).report().tied, SizeIs(1));
  for (int i = 0; i < 2; ++i) {  // identity matrices, as two modules may begin with
    float eye[64] = {};
    for (int j = 0; j < 8; ++j) eye[9 * j] = 1;
    model.mutable_graph()->mutable_initializer(i)->set_raw_data(eye, sizeof(eye));
  }
  EXPECT_THAT(Settled(model).report().tied, IsEmpty());
  EXPECT_THAT(Settled(model).report().copies, IsEmpty());
}

}  // namespace
}  // namespace weft::testing
