#include "onnx_import/edit/inference_form.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/importer.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kStatistics[] =
    "<float[3] s = {1, 2, 3}, float[3] b = {4, 5, 6}, float[3] m = {7, 8, 9},"
    " float[3] v = {1, 2, 4}>";

// A BatchNormalization over kStatistics in a graph with these outputs and nodes.
onnx::ModelProto Normalization(int opset, const std::string& outputs, const std::string& nodes) {
  return ModelOf(opset,
                 "agraph (float[N, 3] x) => (" + outputs + ") " + kStatistics + " {" + nodes + "}");
}

onnx::ModelProto Written(const onnx::ModelProto& model) {
  const auto bytes = WriteForInference(model.SerializeAsString());
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  onnx::ModelProto written;
  EXPECT_TRUE(written.ParseFromString(bytes.value_or("")));
  const auto imported = Import(written);
  EXPECT_TRUE(imported.ok()) << imported.status();
  return written;
}

TrainingModeNodes Count(const onnx::ModelProto& model) {
  const auto file = ModelFile::Parse(model.SerializeAsString(), "test.onnx");
  EXPECT_TRUE(file.ok()) << file.status();
  return TrainingModeNodesOf(*file);
}

std::string AttributesText(const onnx::NodeProto& node) {
  std::string text;
  for (const auto& attribute : node.attribute()) text += attribute.name() + " ";
  return text;
}

TEST(WriteForInference, NormalizesWithRunningStatistics) {
  const onnx::ModelProto model = Normalization(
      17, "float[N, 3] y",
      "y, nm, nv = BatchNormalization <training_mode = 1, momentum = 0.5> (x, s, b, m, v)");
  EXPECT_EQ(Count(model).batch_normalizations, 1);
  const onnx::ModelProto written = Written(model);
  const onnx::NodeProto& node = written.graph().node(0);
  EXPECT_THAT(node.output(), ElementsAre("y"));
  EXPECT_THAT(node.input(), ElementsAre("x", "s", "b", "m", "v"));
  EXPECT_EQ(AttributesText(node), "momentum ");
  EXPECT_FALSE(Count(written).any());
}

TEST(WriteForInference, ReadersOfNewStatisticsReadTheNodesOwn) {
  const onnx::ModelProto written = Written(
      Normalization(17, "float[N, 3] y, float[3] mean, float[3] nv",
                    "h, nm, nv = BatchNormalization <training_mode = 1> (x, s, b, m, v)"
                    "mean = Neg (nm)"
                    // The module once more, with the statistics that the first call made.
                    "y, lm, lv = BatchNormalization <training_mode = 1> (h, s, b, nm, nv)"));
  const onnx::GraphProto& graph = written.graph();
  ASSERT_EQ(graph.node_size(), 4);
  EXPECT_THAT(graph.node(1).input(), ElementsAre("m"));
  EXPECT_THAT(graph.node(2).input(), ElementsAre("h", "s", "b", "m", "v"));
  EXPECT_EQ(graph.node(3).op_type(), "Identity");
  EXPECT_THAT(graph.node(3).input(), ElementsAre("v"));
  EXPECT_THAT(graph.node(3).output(), ElementsAre("nv"));
}

TEST(WriteForInference, OldNormalizationsLoseTheirOutputs) {
  const std::string five = "y, nm, nv, sm, sv = BatchNormalization (x, s, b, m, v)";
  for (const int opset : {9, 13}) {
    const onnx::ModelProto model = Normalization(opset, "float[N, 3] y", five);
    EXPECT_EQ(Count(model).batch_normalizations, 1);
    EXPECT_THAT(Written(model).graph().node(0).output(), ElementsAre("y")) << opset;
  }
  const onnx::ModelProto oldest = Written(Normalization(6, "float[N, 3] y", five));
  EXPECT_THAT(oldest.graph().node(0).output(), ElementsAre("y"));
  ASSERT_EQ(oldest.graph().node(0).attribute_size(), 1);
  EXPECT_EQ(oldest.graph().node(0).attribute(0).name(), "is_test");
  EXPECT_EQ(oldest.graph().node(0).attribute(0).i(), 1);
}

TEST(WriteForInference, RefusesReadersOfBatchStatistics) {
  const auto refused = WriteForInference(
      Normalization(9, "float[N, 3] y, float[3] z",
                    "y, nm, nv, sm, sv = BatchNormalization (x, s, b, m, v)  z = Neg (sm)")
          .SerializeAsString());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("its output 'sm', a statistic of the batch, is read"));
}

TEST(WriteForInference, DropoutLosesItsModeAndWhatMakesIt) {
  onnx::ModelProto model =
      ModelOf(17,
              "agraph (float[N] x, bool training) => (float[N] y, bool[N] mask)"
              " <float ratio = {0.5}, bool on = {1}> {"
              "  a = Dropout (x, ratio, on)"
              "  t = Constant <value = bool {1}> ()"
              "  b, mask = Dropout (a, ratio, t)"
              "  y = Dropout (b, ratio, training) }");
  model.mutable_graph()->mutable_node(3)->set_input(1, "");
  EXPECT_EQ(Count(model).dropouts, 3);
  const onnx::ModelProto written = Written(model);
  const onnx::GraphProto& graph = written.graph();
  ASSERT_EQ(graph.node_size(), 3);
  EXPECT_THAT(graph.node(0).input(), ElementsAre("x", "ratio"));
  EXPECT_THAT(graph.node(1).output(), ElementsAre("b", "mask"));
  EXPECT_THAT(graph.node(2).input(), ElementsAre("b"));
  ASSERT_EQ(graph.initializer_size(), 1);
  EXPECT_EQ(graph.initializer(0).name(), "ratio");
  ASSERT_EQ(graph.input_size(), 1);
  EXPECT_EQ(graph.input(0).name(), "x");
  EXPECT_FALSE(Count(written).any());
}

TEST(WriteForInference, AModeThatOthersReadStays) {
  const onnx::ModelProto written = Written(ModelOf(17,
                                                   "agraph (float[N] x) => (float[N] y, bool z)"
                                                   " <float ratio = {0.5}, bool on = {1}> {"
                                                   "  y = Dropout (x, ratio, on)  z = Not (on) }"));
  ASSERT_EQ(written.graph().initializer_size(), 2);
  EXPECT_THAT(written.graph().node(0).input(), ElementsAre("x", "ratio"));
}

TEST(WriteForInference, OldestDropoutsAreTests) {
  const onnx::ModelProto written = Written(ModelOf(
      6, "agraph (float[N] x) => (float[N] y) { y = Dropout <ratio = 0.25, is_test = 0> (x) }"));
  EXPECT_EQ(written.graph().node(0).attribute(1).i(), 1);
  EXPECT_THAT(written.graph().node(0).attribute(0).name(), "ratio");
}

TEST(WriteForInference, ReachesFunctionsAndSubgraphs) {
  onnx::ModelProto model = ModelFromText(
      "<ir_version: 8, opset_import: [\"\" : 17, \"local\" : 1]>\n"
      "agraph (float[2, 3] x, bool c) => (float[2, 3] y)"
      " <float[3] s = {1, 2, 3}, float[3] m = {7, 8, 9}, bool on = {1}> {"
      "  h = local.norm (x, s, m)"
      "  y = If (c) }\n"
      "<opset_import: [\"\" : 17], domain: \"local\">\n"
      "norm (a, t, u) => (o) {"
      "  o, p, q = BatchNormalization <training_mode = 1> (a, t, u, u, t) }");
  for (const std::string branch : {"then", "else"}) {
    onnx::AttributeProto& body = *model.mutable_graph()->mutable_node(1)->add_attribute();
    body.set_name(branch + "_branch");
    body.set_type(onnx::AttributeProto::GRAPH);
    body.mutable_g()->set_name(branch);
    body.mutable_g()->add_output()->set_name("z");
    onnx::NodeProto& node = *body.mutable_g()->add_node();
    node.set_op_type(branch == "then" ? "Dropout" : "Identity");
    node.add_input("h");
    node.add_output("z");
    if (branch == "else") continue;
    node.add_input("");
    node.add_input("on");
  }
  EXPECT_EQ(Count(model).batch_normalizations, 1);
  EXPECT_EQ(Count(model).dropouts, 1);
  const onnx::ModelProto written = Written(model);
  EXPECT_FALSE(Count(written).any());
  EXPECT_THAT(written.functions(0).node(0).output(), ElementsAre("o"));
  const onnx::NodeProto& inner = written.graph().node(1).attribute(0).g().node(0);
  EXPECT_THAT(inner.input(), ElementsAre("h"));
}

TEST(WriteForInference, WhatDoesNotTrainStaysByteForByte) {
  onnx::ModelProto model =
      Normalization(17, "float[N, 3] y", "h = BatchNormalization (x, s, b, m, v)  y = Dropout (h)");
  model.GetReflection()->MutableUnknownFields(&model)->AddLengthDelimited(999, "future");
  EXPECT_FALSE(Count(model).any());
  EXPECT_EQ(*WriteForInference(model.SerializeAsString()), model.SerializeAsString());
}

TEST(WriteForInference, UnknownFieldsOfChangedNodesSurvive) {
  onnx::ModelProto model = Normalization(
      17, "float[N, 3] y", "y = BatchNormalization <training_mode = 1> (x, s, b, m, v)");
  onnx::NodeProto& node = *model.mutable_graph()->mutable_node(0);
  node.GetReflection()->MutableUnknownFields(&node)->AddVarint(77, 5);
  const onnx::ModelProto written = Written(model);
  const onnx::NodeProto& changed = written.graph().node(0);
  EXPECT_THAT(changed.attribute(), IsEmpty());
  EXPECT_EQ(changed.GetReflection()->GetUnknownFields(changed).field_count(), 1);
}

TEST(CheckInferenceForm, SaysWhatWriteSays) {
  const auto file =
      ModelFile::Parse(Normalization(9, "float[N, 3] y, float[3] sm",
                                     "y, nm, nv, sm, sv = BatchNormalization (x, s, b, m, v)")
                           .SerializeAsString(),
                       "test.onnx");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(CheckInferenceForm(*file).message(), HasSubstr("model 'test.onnx': node 'y'"));
}

}  // namespace
}  // namespace weft::testing
