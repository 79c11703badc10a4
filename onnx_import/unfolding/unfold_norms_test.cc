#include "onnx_import/unfolding/unfold_norms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/importer.h"
#include "onnx_import/testing/test_models.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

void AddFloats(onnx::ModelProto& model, const std::string& name, const Shape& shape,
               uint64_t seed) {
  const Tensor values = RandomTensor(shape, seed);
  onnx::TensorProto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(static_cast<int>(DType::kFloat32));
  for (int i = 0; i < shape.rank(); ++i) tensor.add_dims(shape.dim(i));
  tensor.set_raw_data(values.raw_data(), values.bytes());
}

void AddMetadata(onnx::ModelProto& model, int node, const std::string& key,
                 const std::string& value) {
  onnx::StringStringEntryProto& entry =
      *model.mutable_graph()->mutable_node(node)->add_metadata_props();
  entry.set_key(key);
  entry.set_value(value);
}

// Three convolutions, as the exporters write folded ones, and one with a bias of its own.
onnx::ModelProto FoldedModel() {
  onnx::ModelProto model = ModelOf(17, R"(agraph (float[N,2,6,6] x) => (float[N,5,2,2] y) {
    a = Conv<pads = [1,1,1,1]>(x, w5, w6)
    ra = Relu(a)
    b = Conv(ra, w2)
    rb = Relu(b)
    c = Conv(rb, w3, b3)
    rc = Relu(c)
    y = Conv(rc, w4, b4)
  })");
  const std::vector<std::vector<std::string>> operands = {{"onnx::Conv_5", "onnx::Conv_6"},
                                                          {"conv2.weight"},
                                                          {"conv3.weight", "conv3.weight_bias"},
                                                          {"own.weight", "own.bias"}};
  for (int i = 0; i < 4; ++i) {
    onnx::NodeProto& node = *model.mutable_graph()->mutable_node(2 * i);
    for (size_t k = 0; k < operands[i].size(); ++k) {
      node.set_input(static_cast<int>(k) + 1, operands[i][k]);
    }
  }
  model.mutable_graph()->mutable_node(0)->set_name("/conv1/Conv");
  AddFloats(model, "onnx::Conv_5", {3, 2, 3, 3}, 1);
  AddFloats(model, "onnx::Conv_6", {3}, 2);
  AddFloats(model, "conv2.weight", {4, 3, 3, 3}, 3);
  AddFloats(model, "conv3.weight", {6, 4, 2, 2}, 4);
  AddFloats(model, "conv3.weight_bias", {6}, 5);
  AddFloats(model, "own.weight", {5, 6, 2, 2}, 6);
  AddFloats(model, "own.bias", {5}, 7);
  AddMetadata(model, 2, "pkg.onnxscript.rewriter.rule_name",
              "RemoveOptionalBiasFromConv, FuseBatchNormIntoConv");
  AddMetadata(model, 2, "pkg.torch.onnx.name_scopes", "['', 'norm2', 'op_1']");
  return model;
}

ModelFile FileOf(const onnx::ModelProto& model) {
  auto file = ModelFile::Parse(model.SerializeAsString(), "test.onnx");
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

std::vector<double> ResultOf(const ModelFile& file, const Tensor& x) {
  const auto model = ImportModel(file);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const auto values =
      EvaluateGraph(model->graph, {{model->graph.inputs()[0], x}}, {model->graph.outputs()[0]});
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() ? ToDoubles((*values)[0]).value() : std::vector<double>();
}

std::vector<double> TensorIn(const ModelFile& file, const std::string& name) {
  const auto model = ImportModel(file);
  EXPECT_TRUE(model.ok()) << model.status();
  for (const Variable& variable : model->graph.variables()) {
    if (variable.name == name) return ToDoubles(variable.initial).value();
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

std::vector<std::string> Names(const std::vector<FoldedNorm>& norms) {
  std::vector<std::string> names;
  for (const FoldedNorm& norm : norms) names.push_back(norm.convolution);
  return names;
}

std::string Refusal(const onnx::ModelProto& model, const std::vector<std::string>& patterns = {}) {
  const auto norms = FindFoldedNorms(FileOf(model), patterns);
  EXPECT_FALSE(norms.ok());
  return std::string(norms.status().message());
}

// Statistics far from the placeholders.
std::map<std::string, ChannelStatistics> SomeStatistics() {
  return {{"a", {{0.5, -2, 0.25}, {4, 0.01, 0}}}, {"b", {{1, 2, 3, 4}, {0.5, 1, 2, 100}}}};
}

TEST(UnfoldNorms, FindsTheTracesOfBothExporters) {
  const auto norms = FindFoldedNorms(FileOf(FoldedModel()));
  ASSERT_TRUE(norms.ok()) << norms.status();
  EXPECT_THAT(Names(*norms), ElementsAre("/conv1/Conv", "b", "c"));
  EXPECT_EQ(norms->front().channels, 3);
  EXPECT_EQ(norms->front().rank, 4);
  EXPECT_EQ(norms->front().output, "a");
}

// ONNX does not ask for names of nodes that differ. --train-mode '*/unfolded_norm' fits all.
TEST(UnfoldNorms, NamesEndAlikeWhereConvolutionsShareOne) {
  onnx::ModelProto model = FoldedModel();
  for (const int node : {2, 4}) model.mutable_graph()->mutable_node(node)->set_name("conv");
  const ModelFile file = FileOf(model);
  const auto norms = FindFoldedNorms(file);
  ASSERT_TRUE(norms.ok()) << norms.status();
  const auto repaired = UnfoldNorms(file, *norms, {});
  ASSERT_TRUE(repaired.ok()) << repaired.status();
  std::vector<std::string> names;
  for (const onnx::NodeProto& node : repaired->proto()->graph().node()) {
    if (node.op_type() == "BatchNormalization") names.push_back(node.name());
  }
  EXPECT_THAT(names, ElementsAre("/conv1/Conv/unfolded_norm", "conv/unfolded_norm",
                                 "conv_2/unfolded_norm"));
}

TEST(UnfoldNorms, PatternsChooseByNodeOutputWeightAndModule) {
  for (const char* const pattern : {"own.*", "y"}) {
    const auto norms = FindFoldedNorms(FileOf(FoldedModel()), {pattern});
    ASSERT_TRUE(norms.ok()) << norms.status();
    EXPECT_THAT(Names(*norms), ElementsAre("y"));
  }
  const auto norms = FindFoldedNorms(FileOf(FoldedModel()), {"/conv1/*", "norm2"});
  ASSERT_TRUE(norms.ok()) << norms.status();
  EXPECT_THAT(Names(*norms), ElementsAre("/conv1/Conv", "b"));
}

// Whatever the statistics are.
TEST(UnfoldNorms, TheFunctionStaysTheSame) {
  const ModelFile file = FileOf(FoldedModel());
  const Tensor x = RandomTensor({3, 2, 6, 6}, 9);
  const std::vector<double> before = ResultOf(file, x);
  ASSERT_THAT(before, SizeIs(3 * 5 * 2 * 2));
  const auto norms = FindFoldedNorms(file);
  ASSERT_TRUE(norms.ok()) << norms.status();
  for (const auto& statistics : {std::map<std::string, ChannelStatistics>(), SomeStatistics()}) {
    const auto repaired = UnfoldNorms(file, *norms, statistics);
    ASSERT_TRUE(repaired.ok()) << repaired.status();
    const std::vector<double> after = ResultOf(*repaired, x);
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_NEAR(after[i], before[i], 1e-5 * std::max(1.0, std::abs(before[i]))) << i;
    }
  }
}

TEST(UnfoldNorms, TheTensorsAreThoseOfTheFormula) {
  const ModelFile file = FileOf(FoldedModel());
  const auto norms = FindFoldedNorms(file);
  ASSERT_TRUE(norms.ok()) << norms.status();
  const auto statistics = SomeStatistics();
  const auto repaired = UnfoldNorms(file, *norms, statistics);
  ASSERT_TRUE(repaired.ok()) << repaired.status();
  const ChannelStatistics& a = statistics.at("a");
  const std::vector<double> bias = TensorIn(file, "onnx::Conv_6");
  const std::vector<double> mean = TensorIn(*repaired, "conv1.norm.running_mean");
  const std::vector<double> variance = TensorIn(*repaired, "conv1.norm.running_var");
  const std::vector<double> scale = TensorIn(*repaired, "conv1.norm.weight");
  const std::vector<double> shift = TensorIn(*repaired, "conv1.norm.bias");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(mean[i], a.mean[i] - bias[i], 1e-6);
    EXPECT_NEAR(variance[i], a.variance[i], 1e-6);
    EXPECT_NEAR(scale[i], std::sqrt(a.variance[i] + 1e-5), 1e-6);
    EXPECT_NEAR(shift[i], a.mean[i], 1e-6);
  }
  // The exporter's name of the normalization, where it says one, and what nobody measured.
  EXPECT_THAT(TensorIn(*repaired, "norm2.running_mean"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(TensorIn(*repaired, "conv3.norm.running_var"), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_EQ(TensorIn(*repaired, "onnx::Conv_5"), TensorIn(file, "onnx::Conv_5"));
}

TEST(UnfoldNorms, NormalizationsStandBehindConvolutionsWithoutBias) {
  const ModelFile file = FileOf(FoldedModel());
  const auto repaired = UnfoldNorms(file, *FindFoldedNorms(file), {});
  ASSERT_TRUE(repaired.ok()) << repaired.status();
  const onnx::GraphProto& graph = repaired->proto()->graph();
  ASSERT_EQ(graph.node_size(), 10);
  EXPECT_EQ(graph.node(0).input_size(), 2);
  EXPECT_EQ(graph.node(0).output(0), "a/folded");
  EXPECT_EQ(graph.node(1).op_type(), "BatchNormalization");
  EXPECT_EQ(graph.node(1).name(), "/conv1/Conv/unfolded_norm");
  EXPECT_EQ(graph.node(1).output(0), "a");
  EXPECT_EQ(graph.node(3).metadata_props_size(), 2);
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    EXPECT_NE(tensor.name(), "onnx::Conv_6");
    EXPECT_NE(tensor.name(), "conv3.weight_bias");
  }
  const auto again = FindFoldedNorms(*repaired);
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("left a trace"));
}

TEST(UnfoldNorms, ABiasThatSomethingElseReadsStays) {
  onnx::ModelProto model = FoldedModel();
  onnx::NodeProto& node = *model.mutable_graph()->add_node();
  node.set_op_type("Neg");
  node.add_input("onnx::Conv_6");
  node.add_output("z");
  const ModelFile file = FileOf(model);
  const auto repaired = UnfoldNorms(file, *FindFoldedNorms(file), {});
  ASSERT_TRUE(repaired.ok()) << repaired.status();
  EXPECT_THAT(TensorIn(*repaired, "onnx::Conv_6"), SizeIs(3));
}

TEST(UnfoldNorms, WhatIsNotFoundIsRefusedWithTheReason) {
  onnx::ModelProto plain = ModelOf(17, R"(agraph (float[N,2,6,6] x) => (float[N,3,4,4] y) {
    y = Conv(x, w)
  })");
  AddFloats(plain, "w", {3, 2, 3, 3}, 1);
  EXPECT_THAT(Refusal(plain), HasSubstr("has no convolution that an exporter has left a trace"));
  EXPECT_THAT(Refusal(FoldedModel(), {"conv9*"}), HasSubstr("fits no convolution"));
  onnx::ModelProto old = FoldedModel();
  old.mutable_opset_import(0)->set_version(6);
  EXPECT_THAT(Refusal(old), HasSubstr("operator set 6"));
  onnx::ModelProto own = FoldedModel();
  own.add_training_info();
  EXPECT_THAT(Refusal(own), HasSubstr("training_info"));
}

TEST(UnfoldNorms, NothingIsNormalizedTwice) {
  const ModelFile file = FileOf(FoldedModel());
  const auto repaired = UnfoldNorms(file, *FindFoldedNorms(file), {});
  ASSERT_TRUE(repaired.ok()) << repaired.status();
  EXPECT_THAT(std::string(FindFoldedNorms(*repaired, {"/conv1/*"}).status().message()),
              HasSubstr("which BatchNormalization follows already"));
}

TEST(UnfoldNorms, StatisticsMustFitAndBeFinite) {
  const ModelFile file = FileOf(FoldedModel());
  const auto norms = FindFoldedNorms(file);
  ASSERT_TRUE(norms.ok()) << norms.status();
  const auto refusal = [&](const ChannelStatistics& statistics) {
    return std::string(UnfoldNorms(file, *norms, {{"a", statistics}}).status().message());
  };
  EXPECT_THAT(refusal({{1, 2}, {1, 1}}), HasSubstr("statistics of 2 channels, expected 3"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refusal({{1, nan, 2}, {1, 1, 1}}), HasSubstr("channel 1 has mean nan"));
  EXPECT_THAT(refusal({{1, 1, 2}, {1, 1, -1}}), HasSubstr("variance -1"));
}

}  // namespace
}  // namespace weft::testing
