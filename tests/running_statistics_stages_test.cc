// Running statistics of batch normalization lie with the layers that they are of: nothing of them
// crosses from one pipeline stage to the next, and they come to what one process makes of them.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "ops/testing/test_tensors.h"
#include "placement/completion/plan_completion.h"
#include "placement/cost/cost_model.h"
#include "placement/files/plan_file.h"
#include "placement/graph_views/graph_for_samples.h"
#include "placement/partition/partitioner.h"
#include "placement/search/unit_layout.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"
#include "training/graph/training_graph.h"

namespace weft::testing {
namespace {

using ::testing::UnorderedElementsAre;

constexpr int64_t kBatch = 12;
constexpr int kLayers = 6;

// Convolutions with batch normalization between them, and a head.
EquivalenceModel Convolutions() {
  EquivalenceModel model;
  model.name = "running";
  Graph& graph = model.graph;
  GraphBuilder b(graph);
  uint64_t seed = 0;
  const auto variable = [&](const std::string& name, const Shape& shape, double center,
                            bool trainable = true) {
    return graph.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                             RandomTensor(shape, ++seed, center - 0.3, center + 0.3), trainable);
  };
  ValueId x = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32,
                                   SymbolicShape({Dim::Symbol("N"), Dim(3), Dim(8), Dim(8)})});
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = absl::StrCat("layer", i);
    b.set_name_prefix(layer + "/");
    x = b.Op(
        "Conv", {x, variable(layer + ".weight", {3, 3, 3, 3}, 0)},
        {{"kernel_shape", std::vector<int64_t>{3, 3}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
    x = b.Op("BatchNormalization",
             {x, variable(layer + ".scale", {3}, 1), variable(layer + ".shift", {3}, 0),
              variable(layer + ".mean", {3}, 0, false), variable(layer + ".var", {3}, 1, false)},
             {{"training_mode", int64_t{1}}});
    x = b.Op("Relu", {x});
  }
  b.set_name_prefix("head/");
  graph.AddOutput(b.Op("Gemm", {b.Op("Flatten", {x}), variable("head.weight", {192, 5}, 0)}));
  EXPECT_TRUE(b.status().ok()) << b.status();
  model.data["x"] = RandomTensor({3 * kBatch, 3, 8, 8}, 901);
  model.data["labels"] = RandomTensor({3 * kBatch}, 902, 0, 5, DType::kInt64);
  return model;
}

Graph TrainingGraph() {
  auto graph = BuildTrainingGraph(Convolutions().graph, {});
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

// What the ranks of two stages send each other for each micro-batch, as "FROM -> TO SHAPE".
std::vector<std::string> Sends(const Graph& graph, Plan plan) {
  const auto complete = CompletePlan(graph, ClusterSpec::Local(2, 1), std::move(plan), kBatch);
  EXPECT_TRUE(complete.ok()) << complete.status();
  const auto partitions = PartitionStep(graph, *complete, {true, kBatch}, CpuNodeEvaluator());
  EXPECT_TRUE(partitions.ok()) << partitions.status();
  std::vector<std::string> sends;
  for (const Channel& channel : partitions->front().channels) {
    if (!channel.per_micro_batch) continue;
    sends.push_back(
        absl::StrCat(channel.from.value, " -> ", channel.to.value, " ", channel.shape.ToString()));
  }
  return sends;
}

TEST(RunningStatisticsStages, BalancedStagesSendOnlyTheLayersOutput) {
  EXPECT_THAT(Sends(TrainingGraph(), ParseParallel("pp=2,micro=2").value()),
              UnorderedElementsAre("0 -> 1 [6,3,8,8]", "1 -> 0 [6,3,8,8]"));
}

TEST(RunningStatisticsStages, UnitsOfTheSearchSendOnlyTheLayersOutput) {
  const Graph graph = TrainingGraph();
  const Graph sized = GraphForSamples(graph, kBatch / 2).value();
  const CostModel cost = CostModel::OfSpec(ClusterSpec::Local(2, 1)).value();
  const UnitLayout layout = CutIntoUnits(sized, cost, 2 * kLayers).value();
  ASSERT_GT(layout.size(), kLayers);
  Plan plan = ParseParallel("pp=2,micro=2").value();
  for (int unit = 0; unit < layout.size(); ++unit) {
    for (const std::string& node : layout.nodes[unit]) {
      plan.stages[node] = unit < layout.size() / 2 ? 0 : 1;
    }
  }
  EXPECT_THAT(Sends(graph, plan), UnorderedElementsAre("0 -> 1 [6,3,8,8]", "1 -> 0 [6,3,8,8]"));
}

// What a plan says of such a node is done, though it costs sends.
TEST(RunningStatisticsStages, StayWhereAPlanPutsThem) {
  const Graph graph = TrainingGraph();
  Plan plan = ParseParallel("pp=2,micro=2").value();
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.phase != Phase::kForward || node.op == "Accumulate") continue;
    const bool is_late = node.op == "RunningTerm" || !absl::StartsWith(node.name, "layer");
    plan.stages[node.name] = is_late ? 1 : 0;
  }
  // Mean and variance of each layer.
  EXPECT_THAT(Sends(graph, plan), ::testing::SizeIs(2 + 2 * kLayers));
}

TEST(RunningStatisticsStages, TrainToWhatOneProcessTrainsTo) {
  const EquivalenceModel model = Convolutions();
  TrainingRun run;
  run.data = WriteDataFiles(model, ::testing::TempDir());
  run.batch = kBatch;
  run.steps = 5;
  run.optimizer.kind = "momentum";
  run.optimizer.learning_rate = 0.05;
  run.plan = ParseParallel("micro=4").value();
  run.batch_policy.statistics_of_micro_batches = true;
  const auto alone = RunGraph(model.graph, run);
  ASSERT_TRUE(alone.ok()) << alone.status();
  ASSERT_TRUE(alone->parameters.contains("layer0.mean"));
  for (const char* schedule : {"gpipe", "1f1b", "zero_bubble"}) {
    SCOPED_TRACE(schedule);
    run.workers = 2;
    run.plan = ParseParallel(absl::StrCat("pp=2,micro=4,schedule=", schedule)).value();
    const auto staged = RunGraph(model.graph, run);
    ASSERT_TRUE(staged.ok()) << staged.status();
    EXPECT_EQ(staged->losses, alone->losses);
    ASSERT_EQ(staged->parameters.size(), alone->parameters.size());
    for (const auto& [name, value] : alone->parameters) {
      EXPECT_TRUE(BitwiseEqual(staged->parameters.at(name), value)) << name;
    }
  }
}

}  // namespace
}  // namespace weft::testing
