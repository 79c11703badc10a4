// Training graphs in float64, run by hand: micro-batches one by one, their sums, the end.
#include "training/graph/training_graph.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "graph/step_inputs.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 7;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

ValueType TypeOf(DType dtype, std::vector<Dim> dims) {
  return {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))};
}

// scores [N,3] = x [N,4] times w [4,3] plus b [3].
Graph Model() {
  Graph graph;
  const ValueId x = graph.AddInput("x", TypeOf(DType::kFloat64, {Dim::Symbol("N"), 4}));
  const ValueId w =
      graph.AddVariable("w", TypeOf(DType::kFloat64, {4, 3}),
                        testing::RandomTensor({4, 3}, 1, -1, 1, DType::kFloat64), true);
  const ValueId b = graph.AddVariable("b", TypeOf(DType::kFloat64, {3}),
                                      testing::RandomTensor({3}, 2, -1, 1, DType::kFloat64), true);
  GraphBuilder builder(graph);
  const ValueId scores = builder.Op("Add", {builder.Op("MatMul", {x, w}), b});
  builder.Name(scores, "scores");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(scores);
  return graph;
}

Tensor Samples() { return testing::RandomTensor({kSamples, 4}, 3, -1, 1, DType::kFloat64); }
Tensor Labels() { return Tensor::Of<int64_t>({kSamples}, {0, 1, 2, 1, 1, 0, 2}); }

// What a step reports when the batch is cut into micro-batches of these sizes.
std::map<std::string, std::vector<double>> RunSteps(const Graph& graph,
                                                    const std::vector<int>& sizes) {
  std::vector<ValueId> leaves, sums;
  for (NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.op != "Accumulate") continue;
    leaves.push_back(node.inputs[0]);
    sums.push_back(node.outputs[0]);
  }
  std::map<ValueId, Tensor> totals;
  int first = 0;
  for (int size : sizes) {
    std::map<ValueId, Tensor> feeds = {
        {*graph.FindValue("x"), Samples().Rows(first, first + size)},
        {*graph.FindValue("labels"), Labels().Rows(first, first + size)}};
    first += size;
    const auto values = testing::EvaluateGraph(graph, feeds, leaves, KernelRegistry::Reference());
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return {};
    for (size_t i = 0; i < leaves.size(); ++i) {
      Tensor leaf = *CastTensor((*values)[i], DType::kFloat64);
      auto [total, added] = totals.try_emplace(sums[i], *leaf.Clone());
      if (added) continue;
      const std::span<double> into = total->second.mutable_data<double>();
      for (size_t e = 0; e < into.size(); ++e) into[e] += leaf.data<double>()[e];
    }
  }
  for (auto& [id, total] : totals) total = *CastTensor(total, graph.value(id).type.dtype);
  totals[*graph.FindValue("x")] = Samples();
  totals[*graph.FindValue("labels")] = Labels();
  const auto outputs =
      testing::EvaluateGraph(graph, totals, graph.outputs(), KernelRegistry::Reference());
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  std::map<std::string, std::vector<double>> reports;
  for (size_t i = 0; outputs.ok() && i < graph.outputs().size(); ++i) {
    reports[graph.value(graph.outputs()[i]).name] = *ToDoubles((*outputs)[i]);
  }
  return reports;
}

// The mean cross entropy of the model over all samples, written out.
double MeanLoss(const std::vector<double>& w, const std::vector<double>& b) {
  const std::vector<double> x = *ToDoubles(Samples());
  double total = 0;
  for (int64_t n = 0; n < kSamples; ++n) {
    double scores[3], sum = 0;
    for (int c = 0; c < 3; ++c) {
      scores[c] = b[c];
      for (int k = 0; k < 4; ++k) scores[c] += x[n * 4 + k] * w[k * 3 + c];
      sum += std::exp(scores[c]);
    }
    total += std::log(sum) - scores[Labels().data<int64_t>()[n]];
  }
  return total / kSamples;
}

TEST(TrainingGraphTest, UnevenMicroBatchesGiveTheWholeBatchsMean) {
  const Graph model = Model();
  const auto graph = BuildTrainingGraph(model, {.report_gradients = true});
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::vector<double> w = *ToDoubles(model.FindVariable("w")->initial);
  const std::vector<double> b = *ToDoubles(model.FindVariable("b")->initial);
  for (const std::vector<int>& sizes :
       std::vector<std::vector<int>>{{7}, {3, 4}, {6, 1}, {1, 1, 1, 1, 1, 1, 1}, {2, 5, 0}}) {
    const auto reports = RunSteps(*graph, sizes);
    EXPECT_NEAR(reports.at("loss")[0], MeanLoss(w, b), 1e-12);
    const std::vector<double>& gradient = reports.at("gradient/w");
    ASSERT_EQ(gradient.size(), 12u);
    for (size_t i = 0; i < gradient.size(); ++i) {
      std::vector<double> low = w, high = w;
      low[i] -= 1e-5;
      high[i] += 1e-5;
      EXPECT_NEAR(gradient[i], (MeanLoss(high, b) - MeanLoss(low, b)) / 2e-5, 1e-9) << i;
    }
    EXPECT_EQ(reports.at("gradient/b").size(), 3u);
  }
}

TEST(TrainingGraphTest, HasTheInputsOutputsAndUpdatesThatItsHeaderPromises) {
  const auto graph = BuildTrainingGraph(Model(), {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<std::string> inputs;
  for (ValueId id : graph->inputs()) inputs.push_back(graph->value(id).name);
  EXPECT_THAT(inputs, ElementsAre("x", kLabelsInput, kLearningRateInput));
  EXPECT_EQ(graph->input_role(*graph->FindValue(kLearningRateInput)), InputRole::kStep);
  EXPECT_EQ(graph->input_role(*graph->FindValue(kLabelsInput)), InputRole::kData);
  ASSERT_EQ(graph->outputs().size(), 1u);
  EXPECT_EQ(graph->value(graph->outputs()[0]).name, kLossOutput);
  for (const char* name : {"w", "b"}) EXPECT_TRUE(graph->FindVariable(name)->update.valid());
  const absl::Status verified = VerifyGraph(*graph);
  EXPECT_TRUE(verified.ok()) << verified;
}

TEST(TrainingGraphTest, AdamAsksForTheStepNumber) {
  const auto graph = BuildTrainingGraph(Model(), {.optimizer = {.kind = "adam"}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::optional<ValueId> step = graph->FindValue(kStepInput);
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(graph->value(*step).type.ToString(), "int64[]");
  EXPECT_NE(graph->FindVariable("w/m"), nullptr);
}

// Their kernels have no gradients, their bodies do: the operator table said that they train, and
// training refused them.
TEST(TrainingGraphTest, NormalizationsWithKernelsOfTheirOwnTrain) {
  for (const char* op : {"InstanceNormalization", "GroupNormalization"}) {
    Graph model;
    GraphBuilder builder(model);
    const ValueType image = TypeOf(DType::kFloat32, {Dim::Symbol("N"), 4, 5});
    const ValueType channels = TypeOf(DType::kFloat32, {4});
    const ValueId y =
        builder.Op(op,
                   {model.AddInput("x", image),
                    model.AddVariable("scale", channels, testing::RandomTensor({4}, 1), true),
                    model.AddVariable("bias", channels, testing::RandomTensor({4}, 2), true)},
                   op[0] == 'G' ? Attributes{{"num_groups", int64_t{2}}} : Attributes{});
    builder.Name(y, "y");
    ASSERT_TRUE(builder.status().ok()) << builder.status();
    model.AddOutput(y);
    const auto graph = BuildTrainingGraph(model, {.loss = {.kind = "mse"}});
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_TRUE(graph->FindVariable("scale")->update.valid());
    EXPECT_TRUE(graph->FindVariable("bias")->update.valid());
  }
}

TEST(TrainingGraphTest, FrozenVariablesKeepTheirValue) {
  Graph model = Model();
  for (Variable& variable : model.mutable_variables()) {
    variable.trainable = variable.name == "b";
  }
  const auto graph = BuildTrainingGraph(model, {.report_gradients = true});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_FALSE(graph->FindVariable("w")->update.valid());
  EXPECT_TRUE(graph->FindVariable("b")->update.valid());
  EXPECT_FALSE(graph->FindValue("gradient/w").has_value());
}

TEST(TrainingGraphTest, AModelValueNamedLossDoesNotGetInTheWay) {
  Graph model = Model();
  model.RenameValue(*model.FindValue("scores"), "loss");
  const auto graph = BuildTrainingGraph(model, {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->outputs().size(), 1u);
  EXPECT_EQ(graph->value(graph->outputs()[0]).name, "loss");
  const std::vector<double> w = *ToDoubles(model.FindVariable("w")->initial);
  const std::vector<double> b = *ToDoubles(model.FindVariable("b")->initial);
  EXPECT_NEAR(RunSteps(*graph, {4, 3}).at("loss")[0], MeanLoss(w, b), 1e-12);
}

TEST(TrainingGraphTest, AModelValueNamedLabelsDoesNotGetInTheWay) {
  Graph model = Model();
  model.RenameValue(*model.FindValue("scores"), "labels");
  const auto graph = BuildTrainingGraph(model, {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->value(*graph->FindValue("labels")).source, ValueSource::kInput);
  const std::vector<double> w = *ToDoubles(model.FindVariable("w")->initial);
  const std::vector<double> b = *ToDoubles(model.FindVariable("b")->initial);
  EXPECT_NEAR(RunSteps(*graph, {4, 3}).at("loss")[0], MeanLoss(w, b), 1e-12);
}

TEST(TrainingGraphTest, WeightsAndInputsMayNotHaveTheNamesOfAStep) {
  for (const char* name : {"loss", "labels", "weft.learning_rate", "weft.step"}) {
    Graph model = Model();
    model.AddVariable(name, TypeOf(DType::kFloat64, {3}), Tensor(), true);
    const absl::Status status = BuildTrainingGraph(model, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr(absl::StrCat("the model's weight '", name,
                                                        "' has a name that a training step")));
    EXPECT_THAT(Message(status), HasSubstr("rename it in the model"));
  }
  Graph model = Model();
  model.RenameValue(*model.FindValue("x"), "loss");
  EXPECT_THAT(Message(BuildTrainingGraph(model, {}).status()),
              HasSubstr("the model's input 'loss'"));
  EXPECT_THAT(Message(BuildEvaluationGraph(model, {}, {"loss"}).status()),
              HasSubstr("the model's input 'loss'"));
}

TEST(TrainingGraphTest, TheModelIsNotChanged) {
  const Graph model = Model();
  const std::string before = model.DebugString();
  ASSERT_TRUE(BuildTrainingGraph(model, {}).ok());
  EXPECT_EQ(model.DebugString(), before);
}

TEST(TrainingGraphTest, NothingTrainable) {
  Graph model = Model();
  for (Variable& variable : model.mutable_variables()) variable.trainable = false;
  const auto graph = BuildTrainingGraph(model, {});
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(graph.status()),
              ::testing::AllOf(HasSubstr("nothing trains"), HasSubstr("--trainable PATTERN")));
}

TEST(TrainingGraphTest, NothingTrainableReachesTheLoss) {
  Graph model = Model();
  for (Variable& variable : model.mutable_variables()) variable.trainable = false;
  model.AddVariable("lost", TypeOf(DType::kFloat64, {2}), Tensor(), true);
  const auto graph = BuildTrainingGraph(model, {});
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(graph.status()), HasSubstr("the loss depends on none"));
}

TEST(TrainingGraphTest, ABadOptimizerIsRefused) {
  const auto graph = BuildTrainingGraph(Model(), {.optimizer = {.kind = "magic"}});
  EXPECT_THAT(Message(graph.status()), HasSubstr("no optimizer 'magic'"));
}

TEST(EvaluationGraphTest, MetricsAreMeansOverAllSamples) {
  const Graph model = Model();
  const auto graph = BuildEvaluationGraph(model, {}, {"accuracy", "loss"});
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto whole = RunSteps(*graph, {7});
  const auto uneven = RunSteps(*graph, {1, 4, 2});
  EXPECT_EQ(whole.at("accuracy/weight")[0], kSamples);
  EXPECT_EQ(whole.at("loss/weight")[0], kSamples);
  EXPECT_EQ(whole.at("accuracy"), uneven.at("accuracy"));
  const std::vector<double> w = *ToDoubles(model.FindVariable("w")->initial);
  const std::vector<double> b = *ToDoubles(model.FindVariable("b")->initial);
  EXPECT_NEAR(whole.at("loss")[0], MeanLoss(w, b), 1e-12);
  EXPECT_NEAR(uneven.at("loss")[0], MeanLoss(w, b), 1e-12);
  const double right = whole.at("accuracy")[0] * kSamples;
  EXPECT_NEAR(right, std::round(right), 1e-5);
}

TEST(EvaluationGraphTest, NothingIsUpdatedAndLabelsAreSharedByTheMetrics) {
  const auto graph = BuildEvaluationGraph(Model(), {}, {"accuracy", "loss"});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->inputs().size(), 2u);
  for (const Variable& variable : graph->variables()) EXPECT_FALSE(variable.update.valid());
  for (NodeId id : graph->node_ids()) EXPECT_NE(graph->node(id).phase, Phase::kBackward);
}

TEST(EvaluationGraphTest, AnUnknownMetricNamesTheKnown) {
  EXPECT_EQ(Message(BuildEvaluationGraph(Model(), {}, {"f1"}).status()),
            "no metric 'f1'; there are accuracy, auc, loss, mae, mse, perplexity, r2 "
            "and topK (top5)");
}

// What is not named is no frozen part: its BatchNormalization keeps the statistics of the batch.
TEST(TrainingGraphTest, ChangesTheNamedVariablesAlone) {
  Graph model;
  GraphBuilder b(model);
  const ValueId x = model.AddInput("x", TypeOf(DType::kFloat32, {Dim::Symbol("N"), 3}));
  const auto vector = [&](const std::string& name, bool trainable) {
    return model.AddVariable(name, TypeOf(DType::kFloat32, {3}), Tensor::Of<float>({3}, {1, 2, 3}),
                             trainable);
  };
  const std::vector<ValueId> norm = b.Ops("", "BatchNormalization",
                                          {x, vector("scale", true), vector("bias", true),
                                           vector("mean", false), vector("variance", false)},
                                          {{"training_mode", int64_t{1}}}, {true, true, true});
  model.AddOutput(b.Op("Mul", {norm[0], vector("w", true)}));
  ASSERT_TRUE(b.status().ok()) << b.status();
  TrainingSpec spec;
  spec.loss.kind = "mse";
  spec.updates = {"w"};
  const auto graph = BuildTrainingGraph(model, spec);
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const auto& [name, changes] : std::map<std::string, bool>{
           {"w", true}, {"scale", false}, {"bias", false}, {"mean", true}, {"variance", true}}) {
    EXPECT_EQ(graph->FindVariable(name)->update.valid(), changes) << name;
  }
}

}  // namespace
}  // namespace weft
