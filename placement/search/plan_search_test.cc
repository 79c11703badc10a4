#include "placement/search/plan_search.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "graph/schedule/memory_plan.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/partition/partition_summary.h"
#include "placement/partition/partitioner.h"
#include "placement/search/plan_evaluator.h"
#include "placement/search/plan_simulation.h"
#include "placement/search/plan_space.h"
#include "placement/search/search_strategy.h"
#include "placement/search/testing/layers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PlanSearchTest : public ::testing::Test {
 protected:
  absl::StatusOr<SearchResult> Search(const Graph& graph, const ClusterSpec& cluster) {
    const CostModel cost = CostModel::OfSpec(cluster).value();
    return SearchPlan(graph, cluster, cost, options_, CpuNodeEvaluator());
  }

  SearchOptions options_;
};

TEST_F(PlanSearchTest, UsesAllWorkersUnlessItMayLeaveSomeOut) {
  const Layers model(4, 512);
  options_.global_batch = 8;  // 8 samples for 4 MiB of weights: no mesh pays over 10 Mbit/s
  const ClusterSpec cluster = ClusterOf(4, 1, 1.25e6);
  const SearchResult all = Search(model.graph(), cluster).value();
  EXPECT_EQ(all.plan.workers.size(), 4u);
  options_.may_leave_out = true;
  const SearchResult fewer = Search(model.graph(), cluster).value();
  EXPECT_THAT(fewer.plan.workers, ElementsAre(0));
  EXPECT_LT(fewer.chosen.step_seconds, all.chosen.step_seconds);
  ASSERT_FALSE(fewer.rejected.empty());
  for (const PlanCandidate& other : fewer.rejected) {
    EXPECT_THAT(other.reason, HasSubstr("times slower: ")) << ParallelText(other.choice);
  }
}

TEST_F(PlanSearchTest, SameInputSamePlan) {
  const Layers model(6, 64);
  options_.global_batch = 64;
  const ClusterSpec cluster = ClusterOf(2, 2, 1.25e9);
  const SearchResult first = Search(model.graph(), cluster).value();
  const SearchResult second = Search(model.graph(), cluster).value();
  EXPECT_EQ(first.chosen.choice, second.chosen.choice);
  EXPECT_EQ(first.plan.stages, second.plan.stages);
  EXPECT_EQ(first.plan.tensor_shardings, second.plan.tensor_shardings);
  EXPECT_EQ(first.chosen.step_seconds, second.chosen.step_seconds);
}

TEST_F(PlanSearchTest, IsAsGoodAsTheBestOfAllPlans) {
  options_.exact_plans = 0;  // compare what the strategies compare
  options_.max_units = 8;
  for (const double link : {1.25e6, 1.25e8, 1e10}) {
    for (const int64_t width : {32, 256}) {
      const Layers model(6, width);
      options_.global_batch = 16;
      options_.may_leave_out = true;
      options_.strategy = "dp";
      const ClusterSpec cluster = ClusterOf(2, 2, link);
      const SearchResult clever = Search(model.graph(), cluster).value();
      options_.strategy = "exhaustive";
      const SearchResult naive = Search(model.graph(), cluster).value();
      EXPECT_LE(clever.chosen.step_seconds, 1.03 * naive.chosen.step_seconds)
          << ParallelText(clever.chosen.choice) << " instead of "
          << ParallelText(naive.chosen.choice);
      EXPECT_LE(clever.evaluated, naive.evaluated);
    }
  }
}

TEST_F(PlanSearchTest, AnnealingFindsAPlanThatIsNotMuchWorse) {
  const Layers model(6, 128);
  options_.global_batch = 16;
  const ClusterSpec cluster = ClusterOf(1, 4, 1e9);
  const double best = Search(model.graph(), cluster)->chosen.step_seconds;
  options_.strategy = "anneal";
  EXPECT_LE(Search(model.graph(), cluster)->chosen.step_seconds, 1.2 * best);
}

// One layer, so no pipeline, and a batch that is too small for split layers to pay: all ways are
// slower than one worker, but one worker has no room.
TEST_F(PlanSearchTest, WhereTheFastestSplitIsNoneWeightsAreSplitForMemory) {
  const Layers model(1, 1024);  // 4 MiB of weights, as much of gradients
  options_.global_batch = 2;
  constexpr int64_t kLimit = 7000000;
  options_.memory_limits = {kLimit, kLimit};
  const SearchResult result = Search(model.graph(), ClusterOf(1, 2, 1e9)).value();
  EXPECT_EQ(result.plan.mesh.tensor, 2);
  EXPECT_TRUE(result.plan.tensor_shardings.at("w0").is_split());
  EXPECT_LE(result.chosen.memory_bytes, kLimit);
}

TEST_F(PlanSearchTest, AnUnknownStrategyIsNamed) {
  const Layers model(2, 8);
  options_.strategy = "guess";
  EXPECT_EQ(Search(model.graph(), ClusterOf(1, 1, 1e9)).status().message(),
            "there is no search 'guess'; there are dp, anneal, exhaustive");
}

TEST_F(PlanSearchTest, MicroBatchesOfTheJobAreKept) {
  const Layers model(4, 64);
  options_.global_batch = 32;
  options_.given.strict = true;
  options_.given.micro_batches = 4;
  options_.fixed_micro_batches = true;
  for (const int workers : {1, 2, 4}) {
    const SearchResult result = Search(model.graph(), ClusterOf(1, workers, 1e9)).value();
    EXPECT_EQ(result.plan.micro_batches, 4) << workers << " workers";
    EXPECT_TRUE(result.plan.strict);
  }
}

TEST_F(PlanSearchTest, MemoryIsAHardLimit) {
  const Layers model(8, 256);  // 2 MiB of weights, as much of gradients
  options_.global_batch = 8;
  const ClusterSpec cluster = ClusterOf(1, 2, 1e9);
  // Half of the model at a time is all that there is room for.
  constexpr int64_t kLimit = 3500000;
  options_.memory_limits = {kLimit, kLimit};
  const SearchResult result = Search(model.graph(), cluster).value();
  EXPECT_EQ(result.plan.mesh.data, 1);
  EXPECT_LE(result.chosen.memory_bytes, kLimit);
  const auto memory = MemoryOfPlan(model.graph(), result.plan, 8, CpuNodeEvaluator());
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (const int64_t bytes : *memory) EXPECT_LE(bytes, kLimit);
  const auto refused = std::find_if(result.rejected.begin(), result.rejected.end(),
                                    [](const PlanCandidate& other) { return !other.fits; });
  ASSERT_NE(refused, result.rejected.end());
  EXPECT_EQ(refused->choice.mesh.data, 2);
  EXPECT_THAT(refused->reason, HasSubstr("does not fit: needs "));
}

// Four units are alive at once at most, and no arena of four holds them: each way to place them
// was tried.
std::vector<BufferLifetime> ValuesWithGapsBetween(int64_t unit) {
  std::vector<BufferLifetime> values = {{2, 2, 4},   {2, 3, 7},   {1, 5, 11},  {1, 6, 9},
                                        {1, 8, 13},  {2, 10, 18}, {1, 12, 14}, {2, 15, 16},
                                        {2, 17, 21}, {1, 19, 20}};
  for (BufferLifetime& value : values) value.bytes *= unit;
  return values;
}

bool FitAll(const std::vector<RankNeed>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [](const RankNeed& one) { return one.fits(); });
}

// What is alive at once decides which plans are simulated. Of those whose arenas take more than the
// limit the next fastest takes the place: here of a plan that was simulated alone, then of one that
// was simulated with others.
TEST_F(PlanSearchTest, TheNextFastestPlanIsTakenWhereAnArenaHasNoRoom) {
  const Layers model(6, 32, ValuesWithGapsBetween(256));
  options_.global_batch = 1024;
  options_.given.micro_batches = 2;
  options_.fixed_micro_batches = true;
  const ClusterSpec cluster = ClusterOf(1, 2, 1e9);
  const Plan fastest = Search(model.graph(), cluster)->plan;
  const auto arenas = MemoryOfPlan(model.graph(), fastest, 1024, CpuNodeEvaluator());
  ASSERT_TRUE(arenas.ok()) << arenas.status();
  const int64_t limit = *std::max_element(arenas->begin(), arenas->end()) - 1;
  PlanSimulationOptions options;
  options.global_batch = 1024;
  options.memory_limits = {limit, limit};
  auto simulation = SimulatePlan(model.graph(), fastest, CostModel::OfSpec(cluster).value(),
                                 options, CpuNodeEvaluator());
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  ASSERT_TRUE(FitAll(simulation->ranks)) << "what is alive at once";
  ASSERT_TRUE(LayOutArenas(simulation->ranks).ok());
  ASSERT_FALSE(FitAll(simulation->ranks)) << "the arenas";

  options_.memory_limits = {limit, limit};
  const SearchResult result = Search(model.graph(), cluster).value();
  EXPECT_TRUE(result.chosen.exact);
  const auto memory = MemoryOfPlan(model.graph(), result.plan, 1024, CpuNodeEvaluator());
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (const int64_t bytes : *memory) EXPECT_LE(bytes, limit);
  for (const PlanCandidate& other : result.rejected) {
    if (!other.fits || !other.exact) continue;
    EXPECT_GE(other.step_seconds, result.chosen.step_seconds) << ParallelText(other.choice);
  }
}

// What compiles of ranks find: some plans of `mesh` need `more` than they were estimated to.
class FakeCompiles {
 public:
  FakeCompiles(Mesh mesh, int64_t more) : mesh_(mesh), more_(more) {}
  RankMemoryFn AsFunction() {
    return [this](const Partition& partition, int) -> absl::StatusOr<int64_t> {
      ++asked_;
      const RankSummary summary = Summarize(partition).value();
      const int64_t estimate = summary.variable_bytes + summary.arena_bytes;
      return partition.mesh == mesh_ ? estimate + more_ : estimate;
    };
  }
  int asked() const { return asked_; }

 private:
  const Mesh mesh_;
  const int64_t more_;
  int asked_ = 0;
};

int64_t FullestOf(const std::vector<int64_t>& bytes) {
  return *std::max_element(bytes.begin(), bytes.end());
}

// The search once took a plan that fitted by its estimate, which knows no workspaces of kernels,
// and the job was then refused. The limit lies between the two figures of the fastest plan.
TEST_F(PlanSearchTest, APlanThatDoesNotFitWhenCompiledIsNotTaken) {
  const Layers model(8, 256);
  options_.global_batch = 8;
  const ClusterSpec cluster = ClusterOf(1, 2, 1e9);
  const Plan fastest = Search(model.graph(), cluster)->plan;
  const int64_t estimate =
      FullestOf(MemoryOfPlan(model.graph(), fastest, 8, CpuNodeEvaluator()).value());
  const int64_t limit = 3 * estimate;
  options_.memory_limits = {limit, limit};
  const SearchResult trusting = Search(model.graph(), cluster).value();
  ASSERT_EQ(trusting.plan.mesh, fastest.mesh);
  EXPECT_FALSE(trusting.chosen.compiled);

  FakeCompiles compiles(fastest.mesh, limit);
  options_.rank_memory = compiles.AsFunction();
  const SearchResult result = Search(model.graph(), cluster).value();
  EXPECT_NE(result.plan.mesh, fastest.mesh);
  EXPECT_GE(compiles.asked(), 1);
  const auto memory =
      MemoryOfPlan(model.graph(), result.plan, 8, CpuNodeEvaluator(), options_.rank_memory);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_LE(FullestOf(*memory), limit);
  const auto refused =
      MemoryOfPlan(model.graph(), fastest, 8, CpuNodeEvaluator(), options_.rank_memory);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_GT(FullestOf(*refused), limit);
}

// Of each mesh the fastest plan was compiled, and of one mesh three others. Where none of them
// fitted, the search gave up, whatever the rest would have needed.
TEST_F(PlanSearchTest, WhereTheFastestDoNotFitWhenCompiledOthersOfTheirMeshAreTried) {
  const Layers model(4, 256);
  options_.global_batch = 64;
  options_.max_units = 8;
  const ClusterSpec cluster = ClusterOf(1, 2, 1e9);
  const Plan fastest = Search(model.graph(), cluster)->plan;
  const int64_t estimate =
      FullestOf(MemoryOfPlan(model.graph(), fastest, 64, CpuNodeEvaluator()).value());
  const int64_t limit = estimate * 2;  // 42 plans with a pipeline come near it
  options_.memory_limits = {limit, limit};
  options_.strategy = "exhaustive";
  options_.exact_plans = 1000;
  int pipelines = 0;
  bool fits = false;
  options_.rank_memory = [&](const Partition& partition, int) -> absl::StatusOr<int64_t> {
    if (partition.rank.value == 0) {
      const bool is_pipeline = partition.mesh.pipeline == 2;
      fits = is_pipeline && ++pipelines > 4;
    }
    return fits ? limit : limit + 1;
  };
  const auto found = Search(model.graph(), cluster);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->plan.mesh.pipeline, 2);
  EXPECT_TRUE(found->chosen.compiled);
  EXPECT_EQ(found->chosen.memory_bytes, limit);
}

// Compiling takes time: far from the limits nothing is compiled, and near them the plans that are
// about to be taken.
TEST_F(PlanSearchTest, OnlyThePlanThatIsAboutToBeTakenIsCompiled) {
  const Layers model(8, 256);
  options_.global_batch = 8;
  const ClusterSpec cluster = ClusterOf(1, 2, 1e9);
  FakeCompiles compiles({1, 1, 1}, 0);
  options_.rank_memory = compiles.AsFunction();
  const SearchResult unlimited = Search(model.graph(), cluster).value();
  EXPECT_EQ(compiles.asked(), 0);
  const int64_t estimate =
      FullestOf(MemoryOfPlan(model.graph(), unlimited.plan, 8, CpuNodeEvaluator()).value());
  options_.memory_limits = {100 * estimate, 100 * estimate};
  EXPECT_EQ(Search(model.graph(), cluster)->chosen.choice, unlimited.chosen.choice);
  EXPECT_EQ(compiles.asked(), 0);
  options_.memory_limits = {3 * estimate, 3 * estimate};
  const SearchResult limited = Search(model.graph(), cluster).value();
  EXPECT_EQ(limited.chosen.choice, unlimited.chosen.choice);
  EXPECT_TRUE(limited.chosen.compiled);
  EXPECT_EQ(limited.chosen.memory_bytes, estimate);
  EXPECT_GE(compiles.asked(), 1);
  EXPECT_LE(compiles.asked(), unlimited.plan.mesh.size());
}

// A GPU in the cluster file may be planned for without one.
TEST_F(PlanSearchTest, WhereNothingCanBeCompiledEstimatesDecide) {
  const Layers model(8, 256);
  options_.global_batch = 8;
  const ClusterSpec cluster = ClusterOf(1, 2, 1e9);
  const Plan fastest = Search(model.graph(), cluster)->plan;
  const int64_t limit =
      3 * FullestOf(MemoryOfPlan(model.graph(), fastest, 8, CpuNodeEvaluator()).value());
  options_.memory_limits = {limit, limit};
  options_.rank_memory = [](const Partition&, int) -> absl::StatusOr<int64_t> {
    return absl::UnimplementedError("no such device");
  };
  const SearchResult result = Search(model.graph(), cluster).value();
  EXPECT_EQ(result.plan.mesh, fastest.mesh);
  EXPECT_FALSE(result.chosen.compiled);
}

TEST_F(PlanSearchTest, SaysWhatIsNeededWhereNothingFits) {
  const Layers model(8, 256);
  options_.global_batch = 8;
  options_.memory_limits = {100000, 100000};
  const absl::Status status = Search(model.graph(), ClusterOf(1, 2, 1e9)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("fits the workers' memory; the least has "));
}

// The search once held that without a pipeline more micro-batches only cost, and took the slowest
// of four data-parallel plans of a GPT whose smaller micro-batches fitted into the caches.
TEST_F(PlanSearchTest, MicroBatchesThatFitCachesAreFoundWithoutAPipelineToo) {
  const Layers model(4, 256);
  options_.global_batch = 64;
  for (const int workers : {1, 2}) {
    const ClusterSpec cluster = ClusterOf(1, workers, 1e12);
    ClusterProfile profile = CostModel::OfSpec(cluster)->profile();
    for (DeviceProfile& device : profile.devices) {
      device.contraction = {{DType::kFloat32, {{{1e6, 2e9}, {8e6, 1e9}}}}};
    }
    const CostModel cost = CostModel::Create(profile).value();
    const auto search = [&](bool fixed) {
      options_.fixed_micro_batches = fixed;
      options_.given.micro_batches = workers;
      return SearchPlan(model.graph(), cluster, cost, options_, CpuNodeEvaluator()).value();
    };
    const SearchResult found = search(false);
    EXPECT_EQ(found.plan.mesh.data, workers);
    EXPECT_GE(found.plan.micro_batches, 4 * workers);
    EXPECT_LT(found.chosen.step_seconds, 0.8 * search(true).chosen.step_seconds);
  }
}

TEST_F(PlanSearchTest, AFasterWorkerGetsMoreOfTheBatch) {
  const Layers model(4, 256);
  options_.global_batch = 64;
  const ClusterSpec cluster = ClusterOf(1, 2, 1e10);
  ClusterProfile profile = CostModel::OfSpec(cluster)->profile();
  profile.devices.resize(1);
  DeviceProfile slow = profile.devices[0];
  slow.name = "slow";
  for (auto& [dtype, curve] : slow.contraction) {
    for (RateCurve::Point& point : curve.points) point.per_second /= 3;
  }
  for (RateCurve* curve : {&slow.elementwise, &slow.movement}) {
    for (RateCurve::Point& point : curve->points) point.per_second /= 3;
  }
  slow.node_seconds *= 3;
  profile.devices.push_back(slow);
  profile.device_of = {0, 1};
  const CostModel cost = CostModel::Create(profile).value();
  options_.exact_plans = 1;
  const SearchResult result =
      SearchPlan(model.graph(), cluster, cost, options_, CpuNodeEvaluator()).value();
  if (result.plan.mesh.data == 2) {
    EXPECT_THAT(result.plan.shares, ElementsAre(3, 1));
  } else {
    EXPECT_EQ(result.plan.mesh.pipeline, 2);
  }
}

TEST_F(PlanSearchTest, EarlierRunsCorrectItsSteps) {
  const Layers model(4, 256);
  options_.global_batch = 16;
  const ClusterSpec cluster = ClusterOf(1, 2, 1e9);
  const CostModel cost = CostModel::OfSpec(cluster).value();
  const auto search = [&](const CostCorrections& corrections) {
    return SearchPlan(model.graph(), cluster, cost.With(corrections), options_, CpuNodeEvaluator())
        .value();
  };
  const SearchResult plain = search({});
  CostCorrections corrections;
  corrections.step = 0.25;
  const SearchResult faster = search(corrections);
  EXPECT_EQ(faster.chosen.choice, plain.chosen.choice);
  EXPECT_EQ(faster.evaluated, plain.evaluated);
  EXPECT_DOUBLE_EQ(faster.chosen.step_seconds, 0.25 * plain.chosen.step_seconds);
  // The best plan has been tried, and was not what it promised.
  corrections.step = 1;
  corrections.plans[PlanSignature(plain.plan)] = 100;
  const SearchResult other = search(corrections);
  EXPECT_NE(PlanSignature(other.plan), PlanSignature(plain.plan));
  EXPECT_LT(other.chosen.step_seconds, 100 * plain.chosen.step_seconds);
}

TEST_F(PlanSearchTest, WhatTheJobChoseStays) {
  const Layers model(4, 64);
  options_.global_batch = 16;
  options_.given.tf32 = options_.given.uses_cudnn = options_.given.fuses_nodes = true;
  options_.given.host_ops = {"Relu"};
  options_.given.commits = true;
  const ClusterSpec cluster = ClusterOf(1, 2, 1e9);
  const Plan plan = Search(model.graph(), cluster)->plan;
  EXPECT_TRUE(plan.tf32);
  EXPECT_TRUE(plan.uses_cudnn);
  EXPECT_TRUE(plan.fuses_nodes);
  EXPECT_TRUE(plan.commits);
  EXPECT_EQ(plan.host_ops, std::vector<std::string>{"Relu"});
}

TEST_F(PlanSearchTest, ThePlanCanBePartitioned) {
  const Layers model(6, 64);
  options_.global_batch = 16;
  for (const int workers : {1, 2, 4, 6}) {
    const SearchResult result = Search(model.graph(), ClusterOf(1, workers, 1e9)).value();
    const auto partitions =
        PartitionStep(model.graph(), result.plan, {true, 16}, CpuNodeEvaluator());
    ASSERT_TRUE(partitions.ok()) << partitions.status();
    EXPECT_EQ(partitions->size(), static_cast<size_t>(workers));
    EXPECT_TRUE(result.chosen.exact);
    EXPECT_GT(result.plan.prediction.step_seconds, 0);
  }
}

}  // namespace
}  // namespace weft
