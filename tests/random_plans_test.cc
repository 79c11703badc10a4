// Whatever the plan, the same losses: plans drawn by a seed against the same job in one process
// with the same micro-batches.
//
// WEFT_PLANS: how many seeds (20). WEFT_WORKER_PROGRAM: run each plan on worker processes that this
// program is started for; else on threads.
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/sharding.h"
#include "gtest/gtest.h"
#include "placement/files/plan_file.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/random_plan.h"
#include "tests/testing/training_run.h"

namespace weft::testing {
namespace {

constexpr int64_t kBatch = 13;
constexpr int64_t kSamples = 3 * kBatch + 5;  // every fourth batch is short
constexpr int64_t kSteps = 10;

std::string Environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

// Written once for each model.
const std::map<std::string, std::string>& DataFiles(const EquivalenceModel& model) {
  static auto* const written = new std::map<std::string, std::map<std::string, std::string>>();
  std::map<std::string, std::string>& files = (*written)[model.name];
  if (files.empty()) files = WriteDataFiles(model, ::testing::TempDir());
  return files;
}

// Every channel and collective of every rank carried the bytes that its plan says, and over sockets
// each message had its header of 96 bytes.
void ExpectTrafficAsPredicted(const TrainingOutcome& outcome, bool on_processes,
                              const std::string& story) {
  for (const RankTraffic& rank : outcome.traffic) {
    EXPECT_EQ(rank.steps, kSteps) << story;
    EXPECT_EQ(rank.measured_bytes, rank.predicted_bytes) << "rank " << rank.rank.value << story;
    for (const StreamComparison& stream : rank.streams) {
      EXPECT_EQ(stream.measured_bytes, stream.predicted_bytes)
          << "rank " << rank.rank.value << ", " << stream.program << ", " << stream.name << " to "
          << stream.to.value << "\n"
          << story;
    }
    EXPECT_EQ(rank.header_bytes % 96, 0);
    EXPECT_EQ(rank.header_bytes > 0, on_processes && rank.measured_bytes > 0) << story;
  }
}

class RandomPlans : public ::testing::TestWithParam<int> {};

TEST_P(RandomPlans, LossesEqualOneProcess) {
  const int seed = GetParam();
  const std::vector<std::string> names = EquivalenceModelNames();
  const std::string& name = names[seed % names.size()];
  const auto model = BuildEquivalenceModel(name, kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  TrainingRun run;
  run.data = DataFiles(*model);
  run.batch = kBatch;
  run.steps = kSteps;
  run.optimizer.kind = "sgd";
  run.optimizer.learning_rate = 0.05;
  run.plan = RandomPlan(model->graph, seed);
  run.workers = run.plan.mesh.size();
  const std::string program = Environment("WEFT_WORKER_PROGRAM", "");
  if (!program.empty()) run.worker_command = {program, "worker"};
  const std::string story =
      absl::StrCat("seed ", seed, ", model ", name, ", plan:\n", PlanToYaml(run.plan));
  const auto spread = RunGraph(model->graph, run);
  ASSERT_TRUE(spread.ok()) << spread.status() << "\n" << story;
  ASSERT_EQ(static_cast<int>(spread->traffic.size()), run.workers);
  ExpectTrafficAsPredicted(*spread, !program.empty(), story);

  TrainingRun alone = run;
  alone.worker_command.clear();
  alone.workers = 1;
  alone.plan = Plan();
  alone.plan.micro_batches = spread->plan.micro_batches;
  alone.plan.strict = run.plan.strict;
  const auto single = RunGraph(model->graph, alone);
  ASSERT_TRUE(single.ok()) << single.status() << "\n" << story;
  ASSERT_EQ(single->losses.size(), static_cast<size_t>(kSteps));
  EXPECT_LE(LargestRelativeGap(spread->losses, single->losses), 1e-5) << story;
  if (!run.plan.strict) return;
  EXPECT_EQ(spread->losses, single->losses) << story;
  for (const auto& [variable, value] : single->parameters) {
    EXPECT_TRUE(BitwiseEqual(spread->parameters.at(variable), value)) << variable << "\n" << story;
  }
}

// Micro-batches of 3 and of 2 samples lie otherwise over four ranks: the sum of a gradient has one
// name in both graphs all the same.
TEST(PlanStories, SumsHaveOneNameWhereMicroBatchesOfTwoSizesAreShardedOtherwise) {
  const auto model = BuildEquivalenceModel("encoder", kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  TrainingRun run;
  run.data = DataFiles(*model);
  run.batch = kBatch;
  run.steps = 1;
  run.optimizer.kind = "sgd";
  run.workers = 4;
  run.plan.mesh = {1, 4, 1};
  run.plan.micro_batches = 6;
  run.plan.tensor_shardings = {{"block0.down.bias", AxisSharding::Split(0, 2)},
                               {"block0.down.weight", AxisSharding::Split(1)},
                               {"block0.up.weight", AxisSharding::Split(1)},
                               {"block1.norm1.scale", AxisSharding::Split(0)},
                               {"block1.norm2.scale", AxisSharding::Split(0, 3)},
                               {"block1.norm2.shift", AxisSharding::Split(0, 3)},
                               {"block1.qkv.bias", AxisSharding::Split(0)},
                               {"block1.qkv.weight", AxisSharding::Split(1)},
                               {"block1.up.bias", AxisSharding::Split(0)},
                               {"head.norm.scale", AxisSharding::Split(0, 2)},
                               {"join.weight", AxisSharding::Split(1, 2)}};
  const auto outcome = RunGraph(model->graph, run);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
}

// The last batch of an epoch has fewer micro-batches than stages: its program numbers its channels
// anew, between other ranks.
TEST(PlanStories, AShortBatchMayUseAChannelsNumberBetweenOtherRanks) {
  const auto model = BuildEquivalenceModel("mlp", kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  TrainingRun run;
  run.data = DataFiles(*model);
  run.batch = kBatch;
  run.steps = kSteps;
  run.optimizer.kind = "sgd";
  run.workers = 3;
  run.plan.mesh = {1, 1, 3};
  run.plan.micro_batches = 5;
  const auto outcome = RunGraph(model->graph, run);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPlans,
                         ::testing::Range(std::atoi(Environment("WEFT_FIRST_PLAN", "1").c_str()),
                                          std::atoi(Environment("WEFT_FIRST_PLAN", "1").c_str()) +
                                              std::atoi(Environment("WEFT_PLANS", "20").c_str())));

}  // namespace
}  // namespace weft::testing
