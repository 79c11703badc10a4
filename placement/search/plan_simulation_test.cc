#include "placement/search/plan_simulation.h"

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/completion/plan_completion.h"
#include "placement/partition/partition_memory.h"
#include "placement/partition/partitioner.h"
#include "placement/simulation/partition_model.h"
#include "placement/simulation/plan_prediction.h"
#include "placement/simulation/simulator.h"
#include "placement/testing/regression_graph.h"

namespace weft {
namespace {

using ::testing::SizeIs;

constexpr int64_t kBatch = 16;

// Eight processors on hosts of two; the first host's compute three times as fast.
CostModel UnequalCosts() {
  ClusterProfile profile;
  for (const double flops : {3e6, 1e6}) {
    DeviceProfile device;
    device.name = "test";
    device.contraction[DType::kFloat32].points = {{1, flops}};
    device.elementwise.points = {{1, flops}};
    device.movement.points = {{1, 1e8}};
    profile.devices.push_back(device);
  }
  for (int worker = 0; worker < 8; ++worker) {
    profile.device_of.push_back(worker < 2 ? 0 : 1);
    profile.host_of.push_back(worker / 2);
  }
  profile.within_host.latency_seconds = 1e-6;
  profile.within_host.bytes_per_second = 1e8;
  profile.between_hosts.latency_seconds = 1e-5;
  profile.between_hosts.bytes_per_second = 1e6;
  auto costs = CostModel::Create(profile);
  EXPECT_TRUE(costs.ok()) << costs.status();
  return *costs;
}

struct PlanCase {
  std::string name;
  Mesh mesh;
  int micro_batches = 8;
  std::vector<int> shares;
  int zero = 0;
  bool strict = false;
  size_t simulated = 0;  // ranks
  friend void PrintTo(const PlanCase& one, std::ostream* out) { *out << one.name; }
};

class PlanSimulationTest : public ::testing::TestWithParam<PlanCase> {};

// One of those replicas that do the same says what all of them do.
TEST_P(PlanSimulationTest, IsWhatAllRanksSay) {
  const PlanCase& one = GetParam();
  const Graph graph = testing::RegressionGraph();
  const CostModel costs = UnequalCosts();
  Plan plan;
  plan.mesh = one.mesh;
  plan.micro_batches = one.micro_batches;
  plan.shares = one.shares;
  plan.zero = one.zero;
  plan.strict = one.strict;
  if (one.strict) plan.reduction = Reduction::kOrderedTree;
  for (int rank = 0; rank < plan.mesh.size(); ++rank) plan.workers.push_back(rank);
  if (plan.mesh.pipeline == 2) plan.stages = {{"fc1/*", 0}, {"fc2/*", 1}, {"loss/*", 1}};

  PlanSimulationOptions options;
  options.global_batch = kBatch;
  options.process_bytes = 1000;
  const auto planned = SimulatePlan(graph, plan, costs, options, CpuNodeEvaluator());
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_THAT(planned->ranks, SizeIs(one.simulated));

  const auto partitions = PartitionStep(graph, plan, {true, kBatch}, CpuNodeEvaluator());
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  const auto model = ModelOfPartitions(*partitions, plan.workers, costs);
  ASSERT_TRUE(model.ok()) << model.status();
  SimulationOptions simulated;
  simulated.steps = kPredictedSteps;
  const auto simulation = SimulateStep(*model, simulated);
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  EXPECT_DOUBLE_EQ(planned->step_seconds, simulation->step_seconds);
  // Rows that do not divide evenly make replicas' own shares differ.
  const double slack = 0.02 * planned->step_seconds;
  double compute = 0;
  double bubble = 0;
  for (const RankTime& time : simulation->ranks) {
    compute += time.compute / plan.mesh.size();
    bubble += time.bubble / plan.mesh.size();
  }
  EXPECT_NEAR(planned->compute_seconds, compute, slack);
  EXPECT_NEAR(planned->bubble_seconds, bubble, slack);
  EXPECT_NEAR(planned->compute_seconds + planned->communication_seconds + planned->bubble_seconds,
              planned->step_seconds, slack);
  int64_t max_needed = 0;
  for (const Partition& partition : *partitions) {
    const auto lifetimes = LifetimesOfStep(partition);
    ASSERT_TRUE(lifetimes.ok()) << lifetimes.status();
    const auto arena = MinArenaBytes(*lifetimes);
    ASSERT_TRUE(arena.ok()) << arena.status();
    max_needed = std::max(max_needed, options.process_bytes + VariableBytes(partition) + *arena);
  }
  int64_t max_simulated = 0;
  for (const RankNeed& need : planned->ranks) max_simulated = std::max(max_simulated, need.total());
  EXPECT_EQ(max_simulated, max_needed);
}

std::vector<PlanCase> Cases() {
  return {
      // The first host's two replicas, and the others.
      {"Data", {8, 1, 1}, 8, {}, 0, false, 2},
      // Of fourteen micro-batches the first two, both the first replica's, are a sample longer.
      {"Shares", {8, 1, 1}, 14, {3, 3, 1, 1, 2, 2, 1, 1}, 0, false, 4},
      // Here too; and one replica has a micro-batch more.
      {"UnevenMicroBatches", {3, 1, 1}, 7, {}, 0, false, 3},
      {"StateOfRowsThatDoNotDivide", {3, 1, 1}, 6, {}, 1, false, 2},
      {"GradientsOfRows", {8, 1, 1}, 8, {}, 2, false, 2},
      {"ParametersOfRows", {4, 1, 1}, 8, {}, 3, false, 2},
      {"Tensor", {4, 2, 1}, 8, {}, 0, false, 4},
      // All have different parts of the tree.
      {"Strict", {4, 1, 1}, 8, {}, 0, true, 4},
      {"Pipeline", {4, 1, 2}, 8, {}, 0, false, 8},
  };
}

INSTANTIATE_TEST_SUITE_P(Plans, PlanSimulationTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(PlanSimulation, ARankFitsWhereItsArenaDoes) {
  RankNeed need;
  need.bytes = 100;
  need.lifetimes = {{64, 0, 1}, {64, 1, 2}, {64, 2, 3}};
  std::vector<RankNeed> ranks(2, need);
  ranks[0].limit = 100 + 128;
  ranks[1].limit = 100 + 127;
  ASSERT_TRUE(LayOutArenas(ranks).ok());
  EXPECT_EQ(ranks[0].arena_bytes, 128);
  EXPECT_TRUE(ranks[0].fits());
  EXPECT_EQ(ranks[1].arena_bytes, 128);
  EXPECT_FALSE(ranks[1].fits());
}

// A plan that fits a worker may not fit a smaller one that does the same.
TEST(PlanSimulation, WorkersOfDifferentMemoryAreNotAlike) {
  const Graph graph = testing::RegressionGraph();
  Plan plan;
  plan.mesh = {2, 1, 1};
  plan.micro_batches = 2;
  plan.workers = {0, 1};
  PlanSimulationOptions options;
  options.global_batch = kBatch;
  options.memory_limits = {1 << 20, 1 << 10};
  const auto simulation = SimulatePlan(graph, plan, UnequalCosts(), options, CpuNodeEvaluator());
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  ASSERT_THAT(simulation->ranks, SizeIs(2));
  EXPECT_EQ(simulation->ranks[0].limit, 1 << 20);
  EXPECT_EQ(simulation->ranks[1].limit, 1 << 10);
}

}  // namespace
}  // namespace weft
