// What a step does with the accumulated gradients, on numbers made by hand: the sums are fed, the
// new weights read.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/step_inputs.h"
#include "gtest/gtest.h"
#include "ops/testing/graph_evaluator.h"
#include "training/graph/optimizer.h"
#include "training/graph/training_graph.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ValueType DoubleType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat64, SymbolicShape(std::move(dims))};
}

// prediction [N,2] = x [N,2] times w [2,2] (zeros) plus b [2] (ones).
Graph Model() {
  Graph graph;
  const ValueId x = graph.AddInput("x", DoubleType({Dim::Symbol("N"), 2}));
  const ValueId w = graph.AddVariable("head/w", DoubleType({2, 2}),
                                      Tensor::Of<double>({2, 2}, {0, 0, 0, 0}), true);
  const ValueId b =
      graph.AddVariable("head/b", DoubleType({2}), Tensor::Of<double>({2}, {1, 1}), true);
  GraphBuilder builder(graph);
  graph.AddOutput(builder.Op("Add", {builder.Op("MatMul", {x, w}), b}));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return graph;
}

struct Step {
  std::map<std::string, std::vector<double>> variables;  // new values
  std::map<std::string, std::vector<double>> reports;
};

// The step number `step` (1 for the first), in which the sum of the gradients of w is (12, 0, 0, 0)
// and that of b (16, 0), over a weight of 4: means (3, 0, 0, 0) and (4, 0), of norm 5.
absl::StatusOr<Step> TryStep(const TrainingSpec& spec, int64_t step = 1) {
  TrainingSpec mse = spec;
  mse.loss.kind = "mse";
  auto graph = BuildTrainingGraph(Model(), mse);
  if (!graph.ok()) return graph.status();
  std::map<ValueId, Tensor> feeds = {
      {*graph->FindValue(kLearningRateInput),
       Tensor::Scalar<float>(static_cast<float>(spec.optimizer.learning_rate))},
      {*graph->FindValue("x"), Tensor::Of<double>({1, 2}, {0, 0})},
      {*graph->FindValue(kLabelsInput), Tensor::Of<double>({1, 2}, {0, 0})}};
  if (const auto input = graph->FindValue(kStepInput))
    feeds[*input] = Tensor::Scalar<int64_t>(step);
  for (const NodeId id : graph->node_ids()) {
    if (graph->node(id).op != "Accumulate") continue;
    const ValueId sum = graph->node(id).outputs[0];
    switch (graph->value(sum).type.shape.rank()) {
      case 0:
        feeds[sum] = Tensor::Scalar<double>(4);
        break;
      case 1:
        feeds[sum] = Tensor::Of<double>({2}, {16, 0});
        break;
      default:
        feeds[sum] = Tensor::Of<double>({2, 2}, {12, 0, 0, 0});
    }
  }
  std::vector<ValueId> wanted = graph->outputs();
  for (const Variable& variable : graph->variables()) wanted.push_back(variable.update);
  auto values = testing::EvaluateGraph(*graph, feeds, wanted, KernelRegistry::Reference());
  if (!values.ok()) return values.status();
  Step made;
  size_t next = 0;
  for (const ValueId output : graph->outputs()) {
    made.reports[graph->value(output).name] = *ToDoubles((*values)[next++]);
  }
  for (const Variable& variable : graph->variables()) {
    made.variables[variable.name] = *ToDoubles((*values)[next++]);
  }
  return made;
}

Step RunStep(const TrainingSpec& spec, int64_t step = 1) {
  const auto made = TryStep(spec, step);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.value_or(Step());
}

constexpr double kRate = 0.5;
const OptimizerSpec kSgd = {.kind = "sgd", .learning_rate = kRate};

TEST(UpdateRegionTest, GradientsAreMeans) {
  const Step step = RunStep({.optimizer = kSgd});
  EXPECT_THAT(step.variables.at("head/w"), ElementsAre(-1.5, 0, 0, 0));
  EXPECT_THAT(step.variables.at("head/b"), ElementsAre(-1, 1));
}

TEST(UpdateRegionTest, TheNormIsThatOfAllGradientsTogether) {
  const Step step = RunStep({.optimizer = kSgd, .clip_norm = 1});
  const double share = 1 / (5 + 1e-6);
  EXPECT_NEAR(step.variables.at("head/w")[0], -kRate * 3 * share, 1e-12);
  EXPECT_NEAR(step.variables.at("head/b")[0], 1 - kRate * 4 * share, 1e-12);
}

TEST(UpdateRegionTest, ShortGradientsAreNotStretched) {
  const Step step = RunStep({.optimizer = kSgd, .clip_norm = 6});
  EXPECT_THAT(step.variables.at("head/w"), ElementsAre(-1.5, 0, 0, 0));
}

TEST(UpdateRegionTest, ElementsAreClipped) {
  const Step step = RunStep({.optimizer = kSgd, .clip_value = 3.5});
  EXPECT_THAT(step.variables.at("head/w"), ElementsAre(-1.5, 0, 0, 0));
  EXPECT_THAT(step.variables.at("head/b"), ElementsAre(1 - kRate * 3.5, 1));
}

TEST(UpdateRegionTest, ReportedGradientsAreNotClipped) {
  const Step step = RunStep({.optimizer = kSgd, .clip_norm = 1, .report_gradients = true});
  EXPECT_THAT(step.reports.at("gradient/head/b"), ElementsAre(4, 0));
}

TEST(UpdateRegionTest, AGroupHasItsOwnRate) {
  TrainingSpec spec{.optimizer = kSgd};
  spec.groups.learning_rates = {{"*/b", 0.125}};
  const Step step = RunStep(spec);
  EXPECT_THAT(step.variables.at("head/w"), ElementsAre(-1.5, 0, 0, 0));
  EXPECT_THAT(step.variables.at("head/b"), ElementsAre(0.5, 1));
}

TEST(UpdateRegionTest, ADecayMayBeOfOneGroup) {
  TrainingSpec spec{.optimizer = kSgd};
  spec.groups.weight_decays = {{"head/b", 1}};
  EXPECT_THAT(RunStep(spec).variables.at("head/b"), ElementsAre(1 - kRate * 5, 0.5));
}

TEST(UpdateRegionTest, VectorsMayBeLeftUndecayed) {
  TrainingSpec spec{.optimizer = kSgd};
  spec.optimizer.weight_decay = 1;
  spec.groups.decay_vectors = false;
  EXPECT_THAT(RunStep(spec).variables.at("head/b"), ElementsAre(-1, 1));
  spec.groups.weight_decays = {{"*b", 0.5}};
  EXPECT_THAT(RunStep(spec).variables.at("head/b"), ElementsAre(-1.25, 0.75));
}

TEST(UpdateRegionTest, APatternThatFitsNothingIsAnError) {
  TrainingSpec spec{.optimizer = kSgd};
  spec.groups.learning_rates = {{"head/bb", 0.125}};
  const absl::Status status = TryStep(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("'head/bb' was given a learning rate, but no parameter that trains has this "
                "name, did you mean 'head/b'?"));
}

// The bias is also called "layer.0.bias", as its module says.
TEST(UpdateRegionTest, AnyNameOfAParameterIsItsGroup) {
  const OptimizerSpec base{.kind = "sgd", .learning_rate = 0.5};
  Variable bias;
  bias.name = "val_7";
  bias.other_names = {"layer.0.bias", "/layer.0/Add.B"};
  const auto rate = [&](const std::map<std::string, double>& rates) {
    ParameterGroups groups;
    groups.learning_rates = rates;
    EXPECT_TRUE(CheckParameterGroups(groups, {&bias}).ok());
    return OptimizerOf(bias, 1, base, groups).learning_rate;
  };
  EXPECT_EQ(rate({{"layer.0.*", 0.25}}), 0.25);
  EXPECT_EQ(rate({{"*.B", 0.125}}), 0.125);
  EXPECT_EQ(rate({{"*", 0.25}, {"/layer.0/*", 0.125}, {"layer.0.bias", 0.75}}), 0.75);
  EXPECT_EQ(rate({{"val_*", 0.25}, {"/layer.0/*", 0.125}}), 0.125) << "more letters";
  Variable other = bias;
  other.name = "val_8";
  ParameterGroups groups;
  groups.learning_rates = {{"layer.0.bias", 0.25}};
  EXPECT_THAT(std::string(CheckParameterGroups(groups, {&bias, &other}).message()),
              HasSubstr("'layer.0.bias' is a name of 2 tensors: 'val_7', 'val_8'"));
}

TEST(UpdateRegionTest, TheScheduleFollowsTheStep) {
  TrainingSpec spec{.optimizer = kSgd};
  spec.schedule.warmup = 4;
  EXPECT_THAT(RunStep(spec, 1).variables.at("head/w"), ElementsAre(-0.375, 0, 0, 0));
  EXPECT_THAT(RunStep(spec, 3).variables.at("head/w"), ElementsAre(-1.125, 0, 0, 0));
  EXPECT_THAT(RunStep(spec, 9).variables.at("head/w"), ElementsAre(-1.5, 0, 0, 0));
}

TEST(UpdateRegionTest, GroupsFollowTheScheduleToo) {
  TrainingSpec spec{.optimizer = kSgd};
  spec.schedule.warmup = 4;
  spec.groups.learning_rates = {{"*/b", 0.125}};
  EXPECT_THAT(RunStep(spec, 2).variables.at("head/b"), ElementsAre(0.75, 1));
}

TEST(UpdateRegionTest, AveragesStartAtTheFirstValueAndFollowTheNewOne) {
  const Step step = RunStep({.optimizer = kSgd, .average_decay = 0.75});
  EXPECT_THAT(step.variables.at("head/w/ema"), ElementsAre(-0.375, 0, 0, 0));
  EXPECT_THAT(step.variables.at("head/b/ema"), ElementsAre(0.5, 1));
}

TEST(UpdateRegionTest, WhatIsOutOfRangeIsNamed) {
  EXPECT_THAT(std::string(TryStep({.clip_norm = -1}).status().message()),
              HasSubstr("the longest gradient is -1"));
  EXPECT_THAT(std::string(TryStep({.clip_value = std::nan("")}).status().message()),
              HasSubstr("the largest gradient is nan"));
  EXPECT_THAT(std::string(TryStep({.average_decay = 1}).status().message()),
              HasSubstr("the decay of the moving average is 1"));
}

}  // namespace
}  // namespace weft
