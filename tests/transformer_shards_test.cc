// `--parallel tp=N` alone on transformers as exporters write them: the search finds Megatron's
// split, ranks keep their part of the parameters, send bytes, and train as one process does.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/cluster_spec.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "ops/testing/op_tester.h"
#include "placement/completion/plan_completion.h"
#include "placement/partition/partition_summary.h"
#include "placement/partition/partitioner.h"
#include "tests/testing/training_run.h"
#include "tests/testing/transformer_models.h"
#include "tools/reports/plan_report.h"
#include "training/graph/training_graph.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBatch = 4;
constexpr int64_t kSteps = 4;
constexpr int64_t kSamples = kBatch * kSteps - 1;  // the last batch is shorter

TrainingRun RunOf(const EquivalenceModel& model) {
  TrainingRun run;
  run.data = WriteDataFiles(model, ::testing::TempDir());
  run.batch = kBatch;
  run.steps = kSteps;
  run.optimizer.kind = "sgd";
  run.optimizer.learning_rate = 0.1;
  return run;
}

std::string Text(const std::map<std::string, AxisSharding>& shardings) {
  std::string text;
  for (const auto& [name, sharding] : shardings) {
    absl::StrAppend(&text, "\n  ", name, " ", sharding.ToString());
  }
  return text;
}

// What each rank keeps of the parameters' elements, 1 = all.
double KeptShare(const Graph& model, const std::map<std::string, AxisSharding>& shardings,
                 int shards) {
  double all = 0;
  double kept = 0;
  for (const Variable& variable : model.variables()) {
    const double size = static_cast<double>(variable.initial.num_elements());
    const auto found = shardings.find(variable.name);
    const bool is_split = found != shardings.end() && found->second.is_split();
    all += size;
    kept += is_split ? size / shards : size;
  }
  return kept / all;
}

// With Adam's updates. A plan that a job completed was made for the graph with the job's own
// optimizer and inputs, so its digest is not this graph's.
std::vector<Partition> PartitionsOf(const Graph& model, Plan plan) {
  plan.model_digest = 0;
  TrainingSpec spec;
  spec.optimizer.kind = "adam";
  const Graph graph = BuildTrainingGraph(model, spec).value();
  const ClusterSpec cluster = ClusterSpec::Local(plan.mesh.size(), 1);
  const Plan complete = CompletePlan(graph, cluster, plan, kBatch).value();
  return PartitionStep(graph, complete, {/*training=*/true, kBatch}, CpuNodeEvaluator()).value();
}

class TransformerShards : public ::testing::TestWithParam<std::string> {};

TEST_P(TransformerShards, AreMegatronsAndTrainAsOneProcess) {
  const auto built = BuildTransformer(GetParam(), kSamples);
  ASSERT_TRUE(built.ok()) << built.status();
  const Graph& model = built->model.graph;
  TrainingRun run = RunOf(built->model);
  const auto single = RunGraph(model, run);
  ASSERT_TRUE(single.ok()) << single.status();
  for (const int shards : {2, 4}) {
    run.workers = shards;
    run.plan.mesh = {1, shards, 1};
    const auto spread = RunGraph(model, run);
    ASSERT_TRUE(spread.ok()) << spread.status();
    const std::map<std::string, AxisSharding>& shardings = spread->plan.tensor_shardings;
    SCOPED_TRACE(absl::StrCat(GetParam(), " on ", shards, " ranks", Text(shardings)));
    for (const auto& [name, sharding] : built->split) {
      const auto found = shardings.find(name);
      ASSERT_TRUE(found != shardings.end()) << name << " is not split";
      EXPECT_EQ(found->second, sharding) << name << " lies as " << found->second.ToString();
    }
    EXPECT_LT(KeptShare(model, shardings, shards), 1.0 / shards + 0.15);
    for (const RankTraffic& rank : spread->traffic) EXPECT_GT(rank.measured_bytes, 0);
    EXPECT_LE(LargestRelativeGap(spread->losses, single->losses), 1e-5);
    for (const auto& [name, value] : single->parameters) {
      ASSERT_TRUE(spread->parameters.contains(name));
      const Tolerance tolerance{.of_magnitude = 1e-5, .absolute = 1e-6};
      EXPECT_TRUE(TensorsNear(spread->parameters.at(name), value, tolerance)) << name;
    }
  }
}

// "For want of a rule" `plan` lists nothing, and nothing is gathered for heads that do not fit.
TEST_P(TransformerShards, EveryNodeHasARule) {
  const auto built = BuildTransformer(GetParam(), kSamples);
  ASSERT_TRUE(built.ok()) << built.status();
  Plan plan;
  plan.mesh = {1, 2, 1};
  plan.tensor_shardings = built->split;
  for (const Partition& partition : PartitionsOf(built->model.graph, plan)) {
    std::set<std::string> ops;
    for (const ReplicatedOp& op : OpsWithoutRule(partition)) ops.insert(op.op);
    EXPECT_THAT(ops, IsEmpty());
    EXPECT_THAT(UnevenSplits(partition), IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TransformerShards, ::testing::ValuesIn(TransformerNames()),
                         [](const auto& info) { return info.param; });

TEST(UnevenHeadsTest, TrainTheSameAndAreNamed) {
  const auto built = BuildTransformer("bert", kSamples, /*heads=*/3);
  ASSERT_TRUE(built.ok()) << built.status();
  const Graph& model = built->model.graph;
  TrainingRun run = RunOf(built->model);
  const auto single = RunGraph(model, run);
  ASSERT_TRUE(single.ok()) << single.status();
  run.workers = 2;
  run.plan.mesh = {1, 2, 1};
  run.plan.tensor_shardings = built->split;
  const auto spread = RunGraph(model, run);
  ASSERT_TRUE(spread.ok()) << spread.status();
  EXPECT_LE(LargestRelativeGap(spread->losses, single->losses), 1e-5);
  const std::vector<Partition> partitions = PartitionsOf(model, spread->plan);
  ASSERT_EQ(partitions.size(), 2u);
  const std::vector<UnevenSplit> splits = UnevenSplits(partitions[0]);
  ASSERT_EQ(splits.size(), 1u);
  EXPECT_EQ(splits[0].op, "Reshape");
  EXPECT_EQ(splits[0].parts, 3);
  EXPECT_EQ(splits[0].elements, 16);
  EXPECT_EQ(splits[0].nodes.size(), 6u);  // query, key and value of two blocks
  EXPECT_GE(splits[0].bytes, 6.0 * kBatch / 2 * 6 * 48 * sizeof(float));  // of half the samples
  EXPECT_THAT(ReplicationText(spread->plan, partitions),
              HasSubstr("2 shards cannot share the parts of an axis (heads) evenly\n"
                        "  Reshape x 6: 3 parts of 16 elements, "));
}

}  // namespace
}  // namespace weft::testing
