#include "onnx_import/training_info.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/exporter.h"
#include "onnx_import/testing/test_models.h"
#include "onnx_import/testing/training_models.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelFile FileOf(const onnx::ModelProto& model) {
  auto file = ModelFile::Parse(model.SerializeAsString(), "self.onnx");
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

std::string CheckError(const onnx::ModelProto& model) {
  const ModelFile file = FileOf(model);
  const absl::Status status = CheckTrainingInfo(file);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(ImportTrainingStep(file).status(), status);
  EXPECT_EQ(ImportInitializations(file).status(), status);
  // Without its training the model is as good as any.
  EXPECT_TRUE(ImportModel(file).ok());
  return std::string(status.message());
}

TEST(TrainingInfo, IsTheGraphAndTheAlgorithmInOne) {
  const ModelFile file = FileOf(RegressionThatTrainsItself());
  EXPECT_TRUE(TrainingInfoOf(file).has_algorithm);
  EXPECT_TRUE(TrainingInfoOf(file).has_initialization);
  const auto step = ImportTrainingStep(file);
  ASSERT_TRUE(step.ok()) << step.status();
  const Graph& graph = step->graph;
  std::vector<std::string> inputs;
  for (const ValueId id : graph.inputs()) inputs.push_back(graph.value(id).name);
  EXPECT_THAT(inputs, ElementsAre("x", "t"));
  std::map<std::string, std::string> updates;
  for (const Variable& variable : graph.variables()) {
    updates[variable.name] = graph.value(variable.update).name;
  }
  EXPECT_EQ(updates, (std::map<std::string, std::string>{
                         {"b", "b_new"}, {"steps", "steps_new"}, {"v", "v_new"}, {"w", "w_new"}}));
  EXPECT_EQ(graph.value(*graph.FindValue("rate")).source, ValueSource::kConstant);
  EXPECT_EQ(graph.outputs().size(), 6u);
}

TEST(TrainingInfo, DoesNotTouchTheModelItself) {
  const auto model = ImportModel(FileOf(RegressionThatTrainsItself()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->graph.inputs().size(), 1u);
  EXPECT_EQ(model->graph.outputs().size(), 1u);
  EXPECT_EQ(model->graph.variables().size(), 2u);
}

TEST(TrainingInfo, InitializationsAreGraphsWithoutInputs) {
  const auto graphs = ImportInitializations(FileOf(RegressionThatTrainsItself()));
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  ASSERT_EQ(graphs->size(), 1u);
  const InitializationGraph& made = graphs->front();
  EXPECT_THAT(made.initializers, ElementsAre("w", "steps"));
  ASSERT_EQ(made.graph.outputs().size(), 2u);
  EXPECT_EQ(made.graph.value(made.graph.outputs()[0]).name, "w_first");
}

TEST(TrainingInfo, ExportsWhatTheAlgorithmUpdatedAndNothingElse) {
  onnx::ModelProto expected = RegressionThatTrainsItself();
  const auto step = ImportTrainingStep(FileOf(expected));
  ASSERT_TRUE(step.ok()) << step.status();
  const auto exported = ExportTrained(*step, {{"w", Tensor::Of<float>({2, 1}, {7, 8})},
                                              {"v", Tensor::Of<float>({2, 1}, {9, 10})},
                                              {"steps", Tensor::Scalar<int64_t>(11)}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  onnx::ModelProto proto;
  ASSERT_TRUE(proto.ParseFromString(exported->bytes));
  const auto again = ImportTrainingStep(FileOf(proto));
  ASSERT_TRUE(again.ok()) << again.status();
  const auto initial = [&](const char* name) {
    return again->graph.FindVariable(name)->initial.ToString(4);
  };
  EXPECT_EQ(initial("w"), "float32[2,1]{7, 8}");
  EXPECT_EQ(initial("b"), "float32[1]{0.5}");
  EXPECT_EQ(initial("v"), "float32[2,1]{9, 10}");
  EXPECT_EQ(initial("steps"), "int64[]{11}");
  for (onnx::ModelProto* model : {&expected, &proto}) {
    model->mutable_graph()->clear_initializer();
    model->mutable_training_info(0)->mutable_algorithm()->clear_initializer();
  }
  EXPECT_EQ(proto.SerializeAsString(), expected.SerializeAsString());
}

TEST(TrainingInfo, BindingsThatLeadNowhereAreNamed) {
  onnx::ModelProto model = RegressionThatTrainsItself();
  model.mutable_training_info(0)->mutable_update_binding(1)->set_key("bias");
  EXPECT_THAT(CheckError(model),
              AllOf(HasSubstr("'self.onnx': training_info 0: update_binding of 'bias' to 'b_new'"),
                    HasSubstr("no initializer of the graph or of the algorithm is called 'bias'")));
  model = RegressionThatTrainsItself();
  model.mutable_training_info(0)->mutable_update_binding(1)->set_value("b_step");
  EXPECT_THAT(CheckError(model),
              AllOf(HasSubstr("update_binding of 'b' to 'b_step': no output is called 'b_step'"),
                    HasSubstr("'b_new'")));
  model = RegressionThatTrainsItself();
  model.mutable_training_info(0)->mutable_update_binding(1)->set_key("w");
  EXPECT_THAT(CheckError(model), HasSubstr("'w' is bound twice"));
  model = RegressionThatTrainsItself();
  model.mutable_training_info(0)->mutable_initialization_binding(0)->set_value("w_new");
  EXPECT_THAT(CheckError(model), HasSubstr("initialization_binding of 'w' to 'w_new'"));
}

TEST(TrainingInfo, GraphsThatDoNotGoTogetherAreRefused) {
  onnx::ModelProto model = RegressionThatTrainsItself();
  model.mutable_training_info(0)->mutable_algorithm()->mutable_node(0)->set_output(0, "product");
  EXPECT_THAT(CheckError(model), HasSubstr("algorithm: it defines 'product', which the inference "
                                           "graph defines already"));
  model = RegressionThatTrainsItself();
  onnx::TrainingInfoProto& info = *model.mutable_training_info(0);
  *info.mutable_initialization()->add_input() = info.algorithm().input(0);
  EXPECT_THAT(CheckError(model), HasSubstr("initialization: its graph has the input 't'"));
  model = RegressionThatTrainsItself();
  model.mutable_training_info(0)->mutable_algorithm()->mutable_node(0)->set_op_type("");
  EXPECT_THAT(CheckError(model), HasSubstr("algorithm: node 0 (?, unnamed, output 'difference')"));
}

TEST(TrainingInfo, OneAlgorithmIsTaken) {
  onnx::ModelProto model = RegressionThatTrainsItself();
  model.mutable_training_info(0)->clear_update_binding();
  EXPECT_THAT(std::string(ImportTrainingStep(FileOf(model)).status().message()),
              HasSubstr("no training algorithm of its own"));
  model = RegressionThatTrainsItself();
  onnx::TrainingInfoProto& other = *model.add_training_info();
  other.add_update_binding()->set_key("w");
  other.mutable_update_binding(0)->set_value("y");
  model.mutable_training_info(0)->mutable_update_binding()->DeleteSubrange(0, 1);
  EXPECT_THAT(std::string(ImportTrainingStep(FileOf(model)).status().message()),
              HasSubstr("several training algorithms"));
}

}  // namespace
}  // namespace weft::testing
