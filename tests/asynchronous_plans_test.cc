// Whatever a plan says, ranks on asynchronous devices have the losses of one CPU: on devices that
// do nothing before they must, and on devices that interleave their streams as a seed draws.
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "placement/files/plan_file.h"
#include "tensor/testing/test_device.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/random_plan.h"
#include "tests/testing/training_run.h"

namespace weft::testing {
namespace {

constexpr int64_t kRows = 29;
constexpr int64_t kRowsPerBatch = 12;  // the third batch has 5
constexpr int64_t kUpdates = 4;

struct PlannedRun {
  std::string name;
  std::string model = "mlp";
  Plan plan = {};
  std::string optimizer = "adamw";
  double clip_norm = 0;
};

void PrintTo(const PlannedRun& run, std::ostream* out) { *out << run.name; }

PlannedRun Spread(const std::string& name, const std::string& model, Mesh mesh) {
  PlannedRun run;
  run.name = name;
  run.model = model;
  run.plan.mesh = mesh;
  run.plan.micro_batches = 4;
  run.plan.bucket_bytes = 512;  // several collectives beside the micro-batches
  return run;
}

std::vector<PlannedRun> PlannedRuns() {
  std::vector<PlannedRun> runs;
  runs.push_back(Spread("Alone", "gpt", {1, 1, 1}));
  runs.push_back(Spread("Recomputed", "gpt", {1, 1, 1}));
  runs.back().plan.recompute_segments = 2;
  runs.push_back(Spread("Replicas", "mlp", {3, 1, 1}));
  runs.push_back(Spread("StrictReplicas", "mlp", {3, 1, 1}));
  runs.back().plan.strict = true;
  runs.push_back(Spread("UnequalReplicas", "mlp", {2, 1, 1}));
  runs.back().plan.shares = {3, 1};
  for (const int zero : {1, 2, 3}) {
    runs.push_back(Spread(absl::StrCat("Zero", zero), "mlp", {2, 1, 1}));
    runs.back().plan.zero = zero;
    runs.back().clip_norm = 0.1;
  }
  runs.push_back(Spread("Shards", "mlp", {1, 2, 1}));
  for (const std::string schedule : {"gpipe", "1f1b", "zero_bubble"}) {
    runs.push_back(Spread(absl::StrCat("Stages_", schedule), "gpt", {1, 1, 2}));
    runs.back().plan.schedule = schedule;
  }
  runs.push_back(Spread("Stages_interleaved", "gpt", {1, 1, 2}));
  runs.back().plan.schedule = "interleaved";
  runs.back().plan.chunks = 2;
  runs.push_back(Spread("ReplicasOfStages", "mlp", {2, 1, 2}));
  runs.back().plan.zero = 1;
  runs.push_back(Spread("ReplicasOfShards", "mlp", {2, 2, 1}));
  return runs;
}

TrainingRun RunOf(const EquivalenceModel& model, const PlannedRun& planned) {
  TrainingRun run;
  run.data = WriteDataFiles(model, ::testing::TempDir());
  run.optimizer.kind = planned.optimizer;
  run.batch = kRowsPerBatch;
  run.steps = kUpdates;
  run.workers = planned.plan.mesh.size();
  run.plan = planned.plan;
  run.stall_timeout_seconds = 30;
  run.change = [clip_norm = planned.clip_norm](TrainingSpec& spec) { spec.clip_norm = clip_norm; };
  return run;
}

// The job on CPUs of one rank.
PlannedRun InOneProcess(PlannedRun planned) {
  Plan plan;
  plan.micro_batches = planned.plan.micro_batches;
  plan.strict = planned.plan.strict;
  planned.plan = plan;
  return planned;
}

void ExpectLossesOfOneCpu(const PlannedRun& planned, int order) {
  const auto model = BuildEquivalenceModel(planned.model, kRows);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto expected = RunGraph(model->graph, RunOf(*model, InOneProcess(planned)));
  ASSERT_TRUE(expected.ok()) << expected.status();
  TrainingRun run = RunOf(*model, planned);
  const TestDevices devices(order, run.workers);
  run.devices = devices.all();
  const auto trained = RunGraph(model->graph, run);
  ASSERT_TRUE(trained.ok()) << trained.status();
  ASSERT_EQ(trained->losses.size(), static_cast<size_t>(kUpdates));
  EXPECT_LE(LargestRelativeGap(trained->losses, expected->losses), 1e-5);
  EXPECT_TRUE(devices.Verify().ok()) << devices.Verify();
}

class AsynchronousPlansTest : public ::testing::TestWithParam<std::tuple<PlannedRun, int>> {};

INSTANTIATE_TEST_SUITE_P(Plans, AsynchronousPlansTest,
                         ::testing::Combine(::testing::ValuesIn(PlannedRuns()),
                                            ::testing::Values(kLazyOrder, 1, 2)),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param).name, "_",
                                               TestDeviceName(std::get<1>(info.param)));
                         });

TEST_P(AsynchronousPlansTest, HaveTheLossesOfOneCpu) {
  const auto& [planned, order] = GetParam();
  ExpectLossesOfOneCpu(planned, order);
}

class AsynchronousRandomPlansTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Seeds, AsynchronousRandomPlansTest, ::testing::Range(300, 312));

TEST_P(AsynchronousRandomPlansTest, HaveTheLossesOfOneCpu) {
  const int seed = GetParam();
  PlannedRun planned;
  const std::vector<std::string> names = EquivalenceModelNames();
  planned.model = names[static_cast<size_t>(seed) % names.size()];
  const auto model = BuildEquivalenceModel(planned.model, kRows);
  ASSERT_TRUE(model.ok()) << model.status();
  planned.plan = RandomPlan(model->graph, static_cast<uint64_t>(seed));
  planned.optimizer = "sgd";
  SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", planned.model, ":\n", PlanToYaml(planned.plan)));
  for (const int order : {kLazyOrder, seed}) ExpectLossesOfOneCpu(planned, order);
}

TEST(AsynchronousEvaluationTest, HasTheMetricsOfOneCpu) {
  const auto model = BuildEquivalenceModel("mlp", kRows);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<std::string> metrics = {"accuracy", "loss"};
  PlannedRun planned = Spread("Evaluation", "mlp", {2, 1, 1});
  const auto expected = EvaluateGraph(model->graph, RunOf(*model, InOneProcess(planned)), metrics);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const int order : {kLazyOrder, 1, 2, 3}) {
    SCOPED_TRACE(TestDeviceName(order));
    TrainingRun run = RunOf(*model, planned);
    const TestDevices devices(order, run.workers);
    run.devices = devices.all();
    const auto measured = EvaluateGraph(model->graph, run, metrics);
    ASSERT_TRUE(measured.ok()) << measured.status();
    for (const auto& [name, value] : expected->metrics) {
      EXPECT_NEAR(measured->metrics.at(name), value, 1e-6) << name;
    }
    EXPECT_TRUE(devices.Verify().ok()) << devices.Verify();
  }
}

}  // namespace
}  // namespace weft::testing
