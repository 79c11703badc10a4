#include "placement/simulation/partition_model.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/completion/plan_completion.h"
#include "placement/partition/partitioner.h"
#include "placement/partition/traffic_prediction.h"
#include "placement/simulation/plan_prediction.h"
#include "placement/simulation/simulator.h"
#include "placement/testing/regression_graph.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::SizeIs;

constexpr double kLatency = 1e-4;
constexpr double kBandwidth = 1e6;

// Workers that compute `flops` FLOP/s and move data in no time, all on one host.
ClusterProfile ProfileOf(int workers, double flops) {
  ClusterProfile profile;
  DeviceProfile device;
  device.name = "test";
  device.contraction[DType::kFloat32].points = {{1, flops}};
  device.elementwise.points = {{1, 1e30}};
  device.movement.points = {{1, 1e30}};
  profile.devices = {device};
  profile.device_of.assign(static_cast<size_t>(workers), 0);
  profile.host_of.assign(static_cast<size_t>(workers), 0);
  profile.within_host.latency_seconds = kLatency;
  profile.within_host.bytes_per_second = kBandwidth;
  profile.between_hosts = profile.within_host;
  return profile;
}

CostModel CostsOf(ClusterProfile profile) {
  auto costs = CostModel::Create(std::move(profile));
  EXPECT_TRUE(costs.ok()) << costs.status();
  return *std::move(costs);
}

// Nothing but an all-reduce of `elements` floats by the ring over `members` ranks.
std::vector<Partition> RingPartitions(int members, int64_t elements) {
  std::vector<int64_t> group(static_cast<size_t>(members));
  std::iota(group.begin(), group.end(), int64_t{0});
  std::vector<Partition> partitions(group.size());
  for (int rank = 0; rank < members; ++rank) {
    Partition& partition = partitions[static_cast<size_t>(rank)];
    partition.rank = RankId(rank);
    partition.mesh = {members, 1, 1};
    const ValueId sum = partition.end.AddInput(
        "sum", {ValueKind::kTensor, DType::kFloat32, Shape{elements}}, InputRole::kStep);
    GraphBuilder builder(partition.end);
    builder.WeftOp(
        "AllReduce", {sum},
        {{"group", group}, {"axis", std::string("data")}, {"algorithm", std::string("ring")}});
    EXPECT_TRUE(builder.status().ok()) << builder.status();
    partition.actions = {{Action::Kind::kUpdate}};
  }
  return partitions;
}

std::vector<int> Workers(int count) {
  std::vector<int> workers(static_cast<size_t>(count));
  std::iota(workers.begin(), workers.end(), 0);
  return workers;
}

// 2 (n - 1) / n of the bytes over each link, in 2 (n - 1) rounds.
TEST(PartitionModelTest, ARingAllReduceTakesTheTimeOfItsFormula) {
  for (const int n : {2, 3, 4, 8}) {
    const int64_t elements = int64_t{n} * 1600;
    const auto model =
        ModelOfPartitions(RingPartitions(n, elements), Workers(n), CostsOf(ProfileOf(n, 1e12)));
    ASSERT_TRUE(model.ok()) << model.status();
    const auto simulation = SimulateStep(*model, {});
    ASSERT_TRUE(simulation.ok()) << simulation.status();
    const double bytes = 4.0 * static_cast<double>(elements);
    EXPECT_NEAR(simulation->step_seconds,
                2.0 * (n - 1) / n * bytes / kBandwidth + 2 * (n - 1) * kLatency, 1e-9)
        << n;
    EXPECT_THAT(simulation->sent_bytes, Each(2 * (n - 1) * 4 * elements / n));
    EXPECT_THAT(simulation->link_bytes,
                AllOf(SizeIs(static_cast<size_t>(n)), Each(2 * (n - 1) * 4 * elements / n)));
  }
}

// Devices that copy to their hosts in 10 us and 1 ns a byte.
ClusterProfile DevicesOf(int workers) {
  ClusterProfile profile = ProfileOf(workers, 1e12);
  profile.devices[0].host_bytes_per_second = 1e9;
  profile.devices[0].host_copy_seconds = 1e-5;
  return profile;
}

// Of two groups the one that is named goes through hosts.
TEST(PartitionModelTest, ACollectiveThroughHostsTakesTheirTime) {
  constexpr int64_t kElements = 1600;
  const CostModel costs = CostsOf(DevicesOf(2));
  const std::vector<Partition> partitions = RingPartitions(2, kElements);
  std::vector<CollectiveSchedule> schedules;
  for (int member = 0; member < 2; ++member) {
    schedules.push_back(RingAllReduce(2, member, kElements));
  }
  for (const MessageWay way : {MessageWay::kDirect, MessageWay::kHost}) {
    PartitionModelOptions options;
    options.host.groups = {{RankId(1), RankId(2)}};
    if (way == MessageWay::kHost) options.host.groups.insert({RankId(0), RankId(1)});
    const auto model = ModelOfPartitions(partitions, Workers(2), costs, options);
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_THAT(model->collectives, SizeIs(1));
    EXPECT_DOUBLE_EQ(model->collectives[0].seconds,
                     costs.CollectiveSeconds(schedules, 4, Workers(2), way));
    ASSERT_FALSE(model->links.empty());
    EXPECT_EQ(model->links[0].bytes_per_second, costs.Link(0, 1, way).bytes_per_second);
  }
}

class StepOfRegression : public ::testing::Test {
 protected:
  StepOfRegression() : graph_(testing::RegressionGraph()) {}

  void Cut(int data, int tensor, int pipeline, int micro_batches) {
    plan_ = Plan();
    plan_.mesh = {data, tensor, pipeline};
    plan_.micro_batches = micro_batches;
    plan_.workers = Workers(plan_.mesh.size());
    if (pipeline == 2) plan_.stages = {{"fc1/*", 0}, {"fc2/*", 1}, {"loss/*", 1}};
    auto partitions = PartitionStep(graph_, plan_, {true, 16}, CpuNodeEvaluator());
    ASSERT_TRUE(partitions.ok()) << partitions.status();
    partitions_ = *std::move(partitions);
  }
  StepModel Model(const CostModel& costs, const PartitionModelOptions& options = {}) {
    auto model = ModelOfPartitions(partitions_, plan_.workers, costs, options);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : StepModel();
  }

  Graph graph_;
  Plan plan_;
  std::vector<Partition> partitions_;
};

TEST_F(StepOfRegression, RanksOfEqualWorkShareTheirRoutine) {
  Cut(4, 1, 2, 16);
  const StepModel model = Model(CostsOf(ProfileOf(8, 1e9)));
  EXPECT_THAT(model.ranks, SizeIs(8));
  EXPECT_THAT(model.routines, SizeIs(2));
  EXPECT_EQ(model.ranks[0].routine, model.ranks[3].routine);
  EXPECT_EQ(model.ranks[4].stage, 1);
  // Four micro-batches: the first one begins the sums, the last one ends them.
  EXPECT_LE(model.segments.size(), 2u * (2 + 2 * 3));
}

TEST_F(StepOfRegression, ChannelsHaveTheTransportsCreditsAndTheirBytes) {
  Cut(1, 1, 2, 4);
  const StepModel model = Model(CostsOf(ProfileOf(2, 1e9)));
  std::vector<std::string> per_micro_batch;
  for (const StepChannel& channel : model.channels) {
    if (channel.credits == 1) continue;  // once per step
    per_micro_batch.push_back(absl::StrCat(channel.from, " to ", channel.to, ": ", channel.bytes,
                                           " bytes, ", channel.credits, " credits"));
  }
  // [4,3] float64 each way.
  EXPECT_THAT(per_micro_batch,
              ElementsAre("0 to 1: 96 bytes, 1024 credits", "1 to 0: 96 bytes, 1024 credits"));
}

// One channel of a pipeline's through hosts, all others between the devices.
TEST_F(StepOfRegression, AChannelThroughHostsTakesTheirTime) {
  Cut(1, 1, 2, 4);
  const CostModel costs = CostsOf(DevicesOf(2));
  const int64_t through_host = partitions_[0].channels.front().id.value;
  const StepModel model = Model(costs, {.per_node = false, .host = {{}, {through_host}}});
  int others = 0;
  for (const StepChannel& channel : model.channels) {
    const bool is_direct = channel.number != through_host;
    others += is_direct ? 1 : 0;
    const LinkCost cost =
        costs.Link(channel.from, channel.to, is_direct ? MessageWay::kDirect : MessageWay::kHost);
    const StepLink& link = model.links[static_cast<size_t>(channel.link)];
    EXPECT_EQ(link.latency_seconds, cost.latency_seconds);
    EXPECT_EQ(link.bytes_per_second, cost.bytes_per_second);
    EXPECT_EQ(channel.send_seconds, cost.send_seconds);
  }
  EXPECT_GT(others, 0);
  EXPECT_NE(costs.Link(0, 1, MessageWay::kHost).bytes_per_second,
            costs.Link(0, 1).bytes_per_second);
  // The prediction is that of the same model.
  Plan direct = plan_;
  ASSERT_TRUE(PredictPlan(partitions_, costs, direct).ok());
  ASSERT_TRUE(PredictPlan(partitions_, costs, plan_, nullptr, {{}, {through_host}}).ok());
  EXPECT_NE(plan_.prediction.step_seconds, direct.prediction.step_seconds);
}

TEST_F(StepOfRegression, ASlowerWorkerTakesLonger) {
  Cut(2, 1, 1, 2);
  ClusterProfile profile = ProfileOf(2, 1e6);
  profile.devices[0].elementwise.points = {{1, 1e6}};
  DeviceProfile slow = profile.devices[0];
  slow.name = "slow";
  slow.contraction[DType::kFloat32].points = {{1, 0.5e6}};
  slow.elementwise.points = {{1, 0.5e6}};
  profile.devices.push_back(slow);
  profile.device_of[1] = 1;
  const auto simulation = SimulateStep(Model(CostsOf(profile)), {});
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  EXPECT_NEAR(simulation->ranks[1].compute / simulation->ranks[0].compute, 2, 0.05);
  EXPECT_GT(simulation->ranks[0].bubble, 0.9 * simulation->ranks[0].compute);
}

TEST_F(StepOfRegression, PerNodeNamesTheNodesAndTakesAsLong) {
  Cut(2, 1, 2, 4);
  const CostModel costs = CostsOf(ProfileOf(4, 1e9));
  const StepModel detailed = Model(costs, {.per_node = true});
  EXPECT_THAT(detailed.names, ::testing::Contains("fc1/MatMul"));
  const auto summed = SimulateStep(Model(costs), {});
  const auto simulation = SimulateStep(detailed, {});
  ASSERT_TRUE(summed.ok() && simulation.ok()) << summed.status() << simulation.status();
  EXPECT_NEAR(simulation->step_seconds, summed->step_seconds, 1e-12);
}

TEST_F(StepOfRegression, WantsAWorkerForEachRank) {
  Cut(2, 1, 1, 2);
  const CostModel costs = CostsOf(ProfileOf(2, 1e9));
  EXPECT_EQ(std::string(ModelOfPartitions(partitions_, Workers(1), costs).status().message()),
            "there is a partition of rank 1, but workers for 1");
  EXPECT_EQ(
      std::string(ModelOfPartitions(partitions_, std::vector<int>{0, 2}, costs).status().message()),
      "worker 2 has no costs: there are 2 workers");
}

TEST_F(StepOfRegression, APipelineIsSimulatedWhole) {
  Cut(1, 1, 2, 4);
  partitions_.pop_back();
  const auto model = ModelOfPartitions(partitions_, plan_.workers, CostsOf(ProfileOf(2, 1e9)));
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(model.status().message()),
              ::testing::HasSubstr("leads to a rank that is not simulated"));
}

TEST_F(StepOfRegression, ThePredictionIsTheSimulatedStep) {
  Cut(2, 1, 2, 4);
  const CostModel costs = CostsOf(ProfileOf(4, 1e9));
  ASSERT_TRUE(PredictPlan(partitions_, costs, plan_).ok());
  const Prediction& prediction = plan_.prediction;
  SimulationOptions options;
  options.steps = 3;
  const auto simulation = SimulateStep(Model(costs), options);
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  EXPECT_DOUBLE_EQ(prediction.step_seconds, simulation->step_seconds);
  EXPECT_GT(prediction.compute_seconds, 0);
  EXPECT_GT(prediction.communication_seconds, 4 * kLatency);
  EXPECT_LE(prediction.compute_seconds + prediction.communication_seconds,
            prediction.step_seconds * 1.5);
  EXPECT_GT(prediction.bubble_fraction, 0);
  EXPECT_LT(prediction.bubble_fraction, 1);
  EXPECT_THAT(prediction.memory_bytes, AllOf(SizeIs(4), Each(Gt(0))));
  ASSERT_THAT(prediction.bytes_per_step, SizeIs(4));
  for (size_t rank = 0; rank < 4; ++rank) {
    const auto streams = PredictTraffic(partitions_[rank]);
    ASSERT_TRUE(streams.ok()) << streams.status();
    int64_t bytes = 0;
    for (const StreamPrediction& stream : *streams) bytes += stream.bytes;
    EXPECT_EQ(prediction.bytes_per_step[rank], bytes);
  }
}

TEST_F(StepOfRegression, WhatEarlierRunsTookCorrectsThePrediction) {
  Cut(2, 1, 1, 2);
  CostCorrections corrections;
  corrections.step = 1.5;
  const auto costs = CostModel::Create(ProfileOf(2, 1e9), corrections);
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_TRUE(PredictPlan(partitions_, *costs, plan_).ok());
  const double corrected = plan_.prediction.step_seconds;
  ASSERT_TRUE(PredictPlan(partitions_, CostsOf(ProfileOf(2, 1e9)), plan_).ok());
  EXPECT_DOUBLE_EQ(corrected, 1.5 * plan_.prediction.step_seconds);
}

}  // namespace
}  // namespace weft
