#include "onnx_import/edit/lost_biases.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/ties.h"
#include "onnx_import/model_file.h"
#include "onnx_import/testing/settled_model.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A convolution and a product without biases, of modules that have them.
onnx::ModelProto WithoutBiases() {
  onnx::ModelProto model =
      ModelOf(17,
              "agraph (float[N, 1, 2, 2] x) => (float[N, 5] y)"
              " <float[3, 1, 2, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},"
              "  float[5, 3] v = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}> {"
              "  c = Conv (x, w)  f = Flatten (c)  y = Gemm <transB = 1> (f, v) }");
  model.set_ir_version(8);
  SetModule(model, 0, "stem");
  SetModule(model, 2, "head");
  Rename(*model.mutable_graph(), "w", "stem.weight");
  Rename(*model.mutable_graph(), "v", "head.weight");
  return model;
}

void MoveTo(onnx::ModelProto& model, int node, const std::string& module) {
  model.mutable_graph()->mutable_node(node)->clear_metadata_props();
  SetModule(model, node, module);
}

TEST(RestoreBiases, BringsBackWhatTheSignatureNames) {
  onnx::ModelProto model = WithoutBiases();
  SetSignature(model, {"stem.weight", "stem.bias", "head.weight", "head.bias"});
  const Settled settled(model);
  ASSERT_TRUE(settled.status().ok()) << settled.status();
  EXPECT_THAT(settled.report().restored, ElementsAre("stem.bias", "head.bias"));
  EXPECT_THAT(settled.node(0).input(), ElementsAre("x", "stem.weight", "stem.bias"));
  EXPECT_THAT(settled.node(2).input(), ElementsAre("f", "head.weight", "head.bias"));
  const onnx::TensorProto& bias = settled.proto().graph().initializer(3);
  EXPECT_EQ(bias.name(), "head.bias");
  EXPECT_THAT(bias.dims(), ElementsAre(5));
  EXPECT_EQ(bias.raw_data(), std::string(5 * sizeof(float), '\0'));
  EXPECT_EQ(Settled(settled.proto()).proto().SerializeAsString(),
            settled.proto().SerializeAsString())
      << "an edited file is edited no further";
}

TEST(RestoreBiases, MakesNoneThatTheAuthorDoesNotHave) {
  onnx::ModelProto model = WithoutBiases();
  SetSignature(model, {"stem.weight", "head.weight", "other.bias"});
  EXPECT_THAT(Settled(model).report().restored, IsEmpty());
  EXPECT_THAT(Settled(WithoutBiases()).report().restored, IsEmpty()) << "no signature";
}

TEST(RestoreBiases, LeavesTheFileAsItIsWhenAsked) {
  onnx::ModelProto model = WithoutBiases();
  SetSignature(model, {"stem.weight", "stem.bias", "head.weight", "head.bias"});
  const Settled settled(model, {.untie = {"none"}});
  EXPECT_THAT(settled.report().restored, IsEmpty());
  EXPECT_EQ(settled.proto().SerializeAsString(), model.SerializeAsString());
}

// The bias of the product is there: an Add reads it.
TEST(RestoreBiases, ANameThatIsTakenIsNotLost) {
  onnx::ModelProto model = WithoutBiases();
  SetSignature(model, {"stem.weight", "head.weight", "head.bias"});
  onnx::GraphProto& graph = *model.mutable_graph();
  Rename(graph, "y", "p");
  *graph.add_initializer() = FloatTensor("head.bias", {5}, 1, 1);
  onnx::NodeProto& add = *graph.add_node();
  add.set_op_type("Add");
  add.add_input("p");
  add.add_input("head.bias");
  add.add_output("y");
  EXPECT_THAT(Settled(model).report().restored, IsEmpty());
}

// Deep copies of a layer whose equal weights were merged: each has a bias of its own.
TEST(RestoreBiases, WeightsThatAreUntiedHaveTheirOwnBiases) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 2] x) => (float[N, 2] y)"
                                   " <float[2, 2] w = {1, 2, 3, 4}> {"
                                   "  h = Gemm (x, w)  y = Gemm (h, w) }");
  model.set_ir_version(8);
  SetModule(model, 0, "layers.0.attn");  // which computes with a part's parameters
  SetModule(model, 1, "layers.1.attn");
  Rename(*model.mutable_graph(), "w", "layers.0.attn.out.weight");
  SetSignature(model, {"layers.0.attn.out.weight", "layers.0.attn.out.bias",
                       "layers.1.attn.out.weight", "layers.1.attn.out.bias"});
  const Settled settled(model);
  EXPECT_THAT(settled.Untied(), ElementsAre("layers.1.attn.out.weight"));
  EXPECT_THAT(settled.report().restored,
              ElementsAre("layers.0.attn.out.bias", "layers.1.attn.out.bias"));
}

TEST(RestoreBiases, ATransposedConvolutionHasAsManyAsItsGroupsMake) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 2, 1, 1] x) => (float[N, A, B, C] y)"
                                   " <float[2, 3, 1, 1] w = {1, 2, 3, 4, 5, 6}> {"
                                   "  y = ConvTranspose <group = 2> (x, w) }");
  model.set_ir_version(8);
  SetModule(model, 0, "up");
  Rename(*model.mutable_graph(), "w", "up.weight");
  SetSignature(model, {"up.weight", "up.bias"});
  const Settled settled(model);
  ASSERT_THAT(settled.report().restored, ElementsAre("up.bias"));
  EXPECT_THAT(settled.proto().graph().initializer(1).dims(), ElementsAre(6));
}

// vgg's layers: a normalization that was folded into the convolution gives the node its module.
TEST(RestoreBiases, AFoldedNormalizationLeavesTheBiasOfTheConvolution) {
  onnx::ModelProto without = WithoutBiases();
  MoveTo(without, 0, "norm");
  onnx::ModelProto model = without;
  SetSignature(model, {"stem.weight", "stem.bias", "norm.weight", "norm.bias", "head.weight"},
               {"norm.running_mean", "norm.running_var"});
  EXPECT_THAT(Settled(model).report().restored, ElementsAre("stem.bias"));
  SetSignature(without, {"stem.weight", "norm.weight", "norm.bias", "head.weight"},
               {"norm.running_mean", "norm.running_var"});
  EXPECT_THAT(Settled(without).report().restored, ElementsAre("norm.bias"))
      << "of a convolution without a bias";
}

// A tied autoencoder, and a Mamba layer that computes with the parameters of its convolution.
TEST(RestoreBiases, BiasesWithOtherNamesAreTheModulesInOrder) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 2] x) => (float[N, 2] y)"
                                   " <float[2, 3] w = {1, 2, 3, 4, 5, 6},"
                                   "  float[3, 2] t = {1, 4, 2, 5, 3, 6}> {"
                                   "  h = Gemm (x, w)  y = Gemm (h, t) }");
  model.set_ir_version(8);
  SetModule(model, 0, "coder");
  SetModule(model, 1, "coder");
  Rename(*model.mutable_graph(), "w", "coder.weight");
  SetSignature(model, {"coder.weight", "coder.bias_in", "coder.out.bias"});
  const Settled settled(model);
  ASSERT_THAT(settled.report().restored, ElementsAre("coder.bias_in", "coder.out.bias"));
  EXPECT_EQ(settled.node(0).input(2), "coder.bias_in");
  EXPECT_EQ(settled.node(1).input(2), "coder.out.bias");
}

// Mamba: the weight of another part is there, and its product lies elsewhere.
TEST(RestoreBiases, ABiasWhoseWeightIsThereIsNoOtherNodes) {
  onnx::ModelProto model = WithoutBiases();
  MoveTo(model, 0, "mixer");
  Rename(*model.mutable_graph(), "stem.weight", "unsqueeze");
  *model.mutable_graph()->add_initializer() = FloatTensor("mixer.dt.weight", {5}, 1, 1);
  SetSignature(model, {"mixer.conv.weight", "mixer.conv.bias", "mixer.dt.weight", "mixer.dt.bias",
                       "head.weight"});
  const Settled settled(model);
  EXPECT_THAT(settled.report().restored, ElementsAre("mixer.conv.bias"));
  EXPECT_EQ(settled.node(0).input(2), "mixer.conv.bias");
}

TEST(RestoreBiases, AnotherNumberOfBiasesThanOfNodesSaysNothing) {
  onnx::ModelProto model = WithoutBiases();
  MoveTo(model, 0, "coder");
  MoveTo(model, 2, "coder");
  Rename(*model.mutable_graph(), "stem.weight", "coder.w");
  Rename(*model.mutable_graph(), "head.weight", "coder.v");
  onnx::ModelProto other = model;
  SetSignature(model, {"coder.w", "coder.v", "coder.bias_in"});
  EXPECT_THAT(Settled(model).report().restored, IsEmpty());
  SetSignature(other, {"coder.w", "coder.v", "coder.bias_in", "coder.scale"});
  EXPECT_THAT(Settled(other).report().restored, IsEmpty()) << "a scale is no bias";
}

// A weight without elements, or whose numbers are nowhere, may say that it is of any size.
TEST(RestoreBiases, NoBiasIsLargerThanItsFileAllows) {
  for (const int64_t width : {int64_t{0}, int64_t{1}}) {
    onnx::ModelProto model = WithoutBiases();
    SetSignature(model, {"stem.weight", "head.weight", "head.bias"});
    onnx::TensorProto& weight = *model.mutable_graph()->mutable_initializer(1);
    weight.clear_float_data();
    weight.clear_raw_data();
    weight.set_dims(0, int64_t{1} << 40);
    weight.set_dims(1, width);
    const auto file = ModelFile::Parse(model.SerializeAsString(), "test.onnx");
    ASSERT_TRUE(file.ok()) << file.status();
    const auto settled = SettleTies(*file);
    if (width == 0) {
      ASSERT_TRUE(settled.ok()) << settled.status();
      EXPECT_THAT(settled->report.restored, IsEmpty());
    } else {
      EXPECT_EQ(settled.status().code(), absl::StatusCode::kResourceExhausted) << settled.status();
    }
  }
}

}  // namespace
}  // namespace weft::testing
