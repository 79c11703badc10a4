#include "placement/search/stage_cut.h"

#include <random>

#include "gtest/gtest.h"
#include "placement/cost/cost_model.h"

namespace weft {
namespace {

// Units of random work, memory and cuts on two kinds of devices, the second half as fast.
PlanningGraph RandomGraph(int units, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto number = [&](int64_t max_number) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(max_number)) + 1;
  };
  PlanningGraph graph;
  graph.cuts.resize(units + 1);
  for (int i = 0; i < units; ++i) {
    PlanningUnit unit;
    const double seconds = 1e-3 * static_cast<double>(number(20));
    unit.forward = {seconds, 2 * seconds};
    unit.backward = unit.weight_gradient = unit.update = {seconds, 2 * seconds};
    unit.variables = {{i, number(1000), number(1000), true}};
    unit.kept_bytes = number(1000);
    unit.transient_bytes = number(100);
    graph.units.push_back(unit);
    if (i > 0) graph.cuts[i] = {number(500), number(500)};
  }
  return graph;
}

PlanChoice PipelineOf(int stages) {
  PlanChoice choice;
  choice.mesh = {1, 1, stages};
  choice.schedule = "1f1b";
  choice.micro_batches = 4;
  for (int i = 0; i < stages; ++i) choice.workers.push_back(i);
  return choice;
}

class StageCutTest : public ::testing::Test {
 protected:
  const CostModel cost_ = CostModel::OfSpec(ClusterSpec::Local(4, 1)).value();
  CollectiveCosts collectives_{cost_};
};

TEST_F(StageCutTest, IsAsGoodAsTheBestOfAllCuts) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int stages = 2 + static_cast<int>(seed % 3);
    const PlanningGraph graph = RandomGraph(9, seed);
    const PlanChoice choice = PipelineOf(stages);
    const StageCosts stage_costs(graph, choice, collectives_);
    std::vector<StagePlace> places(stages);
    for (int stage = 0; stage < stages; ++stage) {
      places[stage].devices = {stage % 2};
      places[stage].in_flight = stages - stage;
      if (seed % 2 == 1) places[stage].memory_limit = 14000;
      places[stage].link_seconds_per_byte = stage % 2 == 0 ? 1e-5 : 1e-4;
      places[stage].sum_seconds_per_byte = seed % 3 == 0 ? 1e-4 : 0;
      places[stage].exposed_seconds_per_byte = seed % 5 == 0 ? 1e-4 : 0;
    }
    const int micro_batches = 1 + static_cast<int>(seed % 7);
    const StageCut clever = CutStages(stage_costs, places, micro_batches);
    const StageCut naive = CutStagesExhaustively(stage_costs, places, micro_batches);
    ASSERT_EQ(clever.begins.empty(), naive.begins.empty()) << "seed " << seed;
    EXPECT_DOUBLE_EQ(clever.step_seconds, naive.step_seconds) << "seed " << seed;
  }
}

// Many units are cut roughly first, which must not hide the best cut: with links that are slow,
// fast or both.
TEST_F(StageCutTest, IsAsGoodAsTheBestOfAllCutsOfManyUnits) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int stages = 2 + static_cast<int>(seed % 2);
    PlanningGraph graph = RandomGraph(26, seed);
    for (PlanningUnit& unit : graph.units) {
      // None so small that it does not matter where it is.
      unit.forward = {unit.forward[0] + 6e-3, unit.forward[1] + 12e-3};
    }
    const PlanChoice choice = PipelineOf(stages);
    const StageCosts stage_costs(graph, choice, collectives_);
    std::vector<StagePlace> places(stages);
    for (int stage = 0; stage < stages; ++stage) {
      places[stage].devices = {static_cast<int>(seed / 4 + stage) % 2};
      places[stage].in_flight = stages - stage;
      if (seed % 3 == 1) places[stage].memory_limit = 50000;
      places[stage].link_seconds_per_byte = stage % 2 == 0 ? 1e-6 : (seed % 4 < 2 ? 1e-3 : 1e-5);
    }
    const int micro_batches = 1 << (seed % 7);
    const StageCut clever = CutStages(stage_costs, places, micro_batches);
    const StageCut naive = CutStagesExhaustively(stage_costs, places, micro_batches);
    ASSERT_EQ(clever.begins.empty(), naive.begins.empty()) << "seed " << seed;
    EXPECT_DOUBLE_EQ(clever.step_seconds, naive.step_seconds) << "seed " << seed;
  }
}

TEST_F(StageCutTest, CostsCountWhatZeroSplits) {
  PlanningGraph graph = RandomGraph(3, 1);
  graph.units[0].variables = {{0, 100, 200, true}, {1, 1000, 2000, true}};
  graph.units[1].variables = {{2, 400, 800, true}, {3, 50, 0, false}};
  graph.units[2].variables = {{4, 30, 60, true}};
  PlanChoice choice;
  choice.mesh = {4, 1, 1};
  choice.zero = 1;
  choice.workers = {0, 1, 2, 3};
  const DataSplit split = {{false, true, true, false, false}, {}};
  const StageCosts stage_costs(graph, choice, collectives_, split);
  EXPECT_EQ(stage_costs.SplitParameters(0, 3), 2);
  EXPECT_EQ(stage_costs.SplitParameters(1, 3), 1);
  EXPECT_EQ(stage_costs.SplitParameters(2, 3), 0);
  EXPECT_EQ(stage_costs.GradientBytes(0, 3), 1530);
  EXPECT_EQ(stage_costs.SplitBytes(0, 2), 1400);
  EXPECT_EQ(stage_costs.Memory(0, 3, 1).state, 200 + 500 + 200 + 60);
}

TEST_F(StageCutTest, ASlowDeviceGetsLess) {
  PlanningGraph graph = RandomGraph(12, 1);
  for (PlanningUnit& unit : graph.units) {
    unit.forward = unit.backward = unit.weight_gradient = {1, 2};
    unit.update = {0, 0};
  }
  const StageCosts stage_costs(graph, PipelineOf(2), collectives_);
  std::vector<StagePlace> places(2);
  places[0].devices = {0};
  places[1].devices = {1};
  const StageCut cut = CutStages(stage_costs, places, 3);
  EXPECT_EQ(cut.begins, (std::vector<int>{0, 8, 12}));
  EXPECT_DOUBLE_EQ(cut.step_seconds, 2 * 24 + 24 + 24);
}

// The search once balanced micro-batches alone: the last stage of a convolutional net, with most
// of the parameters, then took longest.
TEST_F(StageCutTest, WhatIsDoneOncePerStepCountsWhereThePipelineDoesNotHideIt) {
  PlanningGraph graph = RandomGraph(8, 1);
  for (PlanningUnit& unit : graph.units) {
    unit.forward = unit.backward = unit.weight_gradient = {1, 1};
    unit.update = {0, 0};
  }
  const StageCosts equal(graph, PipelineOf(2), collectives_);
  std::vector<StagePlace> places(2);
  places[0].devices = places[1].devices = {0};
  EXPECT_EQ(CutStages(equal, places, 4).begins, (std::vector<int>{0, 4, 8}));
  // The last unit's update is hidden while the first stage drains and fills the pipeline.
  graph.units[7].update = {12, 12};
  const StageCosts hidden(graph, PipelineOf(2), collectives_);
  EXPECT_EQ(CutStages(hidden, places, 4).begins, (std::vector<int>{0, 4, 8}));
  graph.units[7].update = {30, 30};
  const StageCosts exposed(graph, PipelineOf(2), collectives_);
  EXPECT_EQ(CutStages(exposed, places, 4).begins, (std::vector<int>{0, 5, 8}));
  // For the first stage's own update all wait.
  graph.units[7].update = {0, 0};
  graph.units[3].update = {20, 20};
  const StageCosts first(graph, PipelineOf(2), collectives_);
  EXPECT_EQ(CutStages(first, places, 4).begins, (std::vector<int>{0, 3, 8}));
}

TEST_F(StageCutTest, SumsOverReplicasAreHiddenByTheBackwardPass) {
  PlanningGraph graph = RandomGraph(2, 1);
  for (PlanningUnit& unit : graph.units) {
    unit.forward = unit.backward = unit.weight_gradient = {1, 1};
    unit.update = {0, 0};
    unit.variables = {{0, 10, 0, true}};
  }
  const StageCosts stage_costs(graph, PipelineOf(2), collectives_);
  StagePlace place;
  place.devices = {0};
  place.sum_seconds_per_byte = 0.2;
  EXPECT_DOUBLE_EQ(CostOfStage(stage_costs, place, 1, 0, 1).passing, 3);
  place.sum_seconds_per_byte = 0.3;
  EXPECT_DOUBLE_EQ(CostOfStage(stage_costs, place, 1, 0, 1).passing, 4);
  place.exposed_seconds_per_byte = 0.1;
  EXPECT_DOUBLE_EQ(CostOfStage(stage_costs, place, 1, 0, 1).passing, 5);
}

TEST_F(StageCutTest, MemoryIsAHardLimit) {
  PlanningGraph graph = RandomGraph(4, 2);
  for (PlanningUnit& unit : graph.units) {
    unit.variables = {{0, 100, 0, true}};
    unit.kept_bytes = unit.transient_bytes = 0;
  }
  const StageCosts stage_costs(graph, PipelineOf(2), collectives_);
  std::vector<StagePlace> places(2);
  places[0].devices = places[1].devices = {0};
  places[0].memory_limit = 200;  // one unit: parameter and gradient
  places[1].memory_limit = 600;
  EXPECT_EQ(CutStages(stage_costs, places, 4).begins, (std::vector<int>{0, 1, 4}));
  places[1].memory_limit = 500;
  EXPECT_TRUE(CutStages(stage_costs, places, 4).begins.empty());
}

TEST_F(StageCutTest, OfEqualCutsFewestBytesCross) {
  PlanningGraph graph = RandomGraph(4, 3);
  for (PlanningUnit& unit : graph.units) {
    unit.forward = unit.backward = unit.weight_gradient = unit.update = {0, 0};
  }
  graph.units[0].forward = graph.units[3].forward = {1, 1};
  graph.cuts[1] = {500, 500};
  graph.cuts[2] = {5, 5};
  graph.cuts[3] = {50, 50};
  const StageCosts stage_costs(graph, PipelineOf(2), collectives_);
  std::vector<StagePlace> places(2);
  places[0].devices = places[1].devices = {0};
  places[1].link_seconds_per_byte = 1e-6;
  EXPECT_EQ(CutStages(stage_costs, places, 4).begins, (std::vector<int>{0, 2, 4}));
}

// What every micro-batch but the first adds was once left out: pipelines of few micro-batches
// looked an eighth faster than they were.
TEST_F(StageCutTest, EveryMicroBatchButTheFirstAddsItsGradients) {
  PlanningGraph graph = RandomGraph(4, 5);
  PlanChoice choice = PipelineOf(2);
  const double without = StageCosts(graph, choice, collectives_).Seconds(0, 4, 0).Total();
  for (PlanningUnit& unit : graph.units) unit.accumulation = {1, 1};
  EXPECT_NEAR(StageCosts(graph, choice, collectives_).Seconds(0, 4, 0).Total() - without,
              4 * 3.0 / 4, 1e-12);
  choice.micro_batches = 1;
  EXPECT_NEAR(StageCosts(graph, choice, collectives_).Seconds(0, 4, 0).Total(), without, 1e-12);
}

TEST_F(StageCutTest, RecomputationKeepsLessAndRunsLonger) {
  const PlanningGraph graph = RandomGraph(8, 4);
  PlanChoice choice = PipelineOf(2);
  const StageCosts kept(graph, choice, collectives_);
  choice.recompute_segments = 4;
  const StageCosts again(graph, choice, collectives_);
  EXPECT_LT(again.Memory(0, 8, 4).activations, kept.Memory(0, 8, 4).activations);
  EXPECT_NEAR(again.Seconds(0, 4, 0).Total() - kept.Seconds(0, 4, 0).Total(),
              kept.Seconds(0, 4, 0).forward, 1e-12);
}

// What enters the last unit is large: it is kept where a segment begins there, and not where the
// segments of more units begin elsewhere.
TEST_F(StageCutTest, ALastStageOfManyUnitsMayNeedLessThanItsEnd) {
  PlanningGraph graph = RandomGraph(8, 1);
  for (PlanningUnit& unit : graph.units) unit.kept_bytes = 100;
  for (PlanningCut& cut : graph.cuts) cut.forward_bytes = 10;
  graph.units.back().kept_bytes = 50000;
  graph.cuts[7].forward_bytes = 100000;
  PlanChoice choice = PipelineOf(1);
  choice.recompute_segments = 2;
  const StageCosts stage_costs(graph, choice, collectives_);
  std::vector<StagePlace> places(1);
  places[0].devices = {0};
  places[0].memory_limit = stage_costs.Memory(0, 8, 1).total();
  ASSERT_FALSE(StageFits(stage_costs, places[0], 7, 8));
  EXPECT_EQ(CutStages(stage_costs, places, 4).begins, (std::vector<int>{0, 8}));
}

// With as many segments as units or more, each unit is one, and what enters it counts once.
TEST_F(StageCutTest, MoreSegmentsThanUnitsKeepNoMoreThanUnits) {
  PlanningGraph graph = RandomGraph(8, 2);
  PlanChoice choice = PipelineOf(1);
  choice.recompute_segments = 4;
  const int64_t as_many = StageCosts(graph, choice, collectives_).Memory(0, 4, 1).activations;
  choice.recompute_segments = 16;
  const int64_t more = StageCosts(graph, choice, collectives_).Memory(0, 4, 1).activations;
  EXPECT_EQ(as_many, more);
}

}  // namespace
}  // namespace weft
