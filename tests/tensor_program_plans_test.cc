// Layouts along the tensor axis that an integer program chose: as cheap as the beam's at least, and
// training with them makes the losses of one process.
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/graph_views/graph_for_samples.h"
#include "placement/search/tensor_split.h"
#include "placement/search/testing/tensor_program.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"
#include "training/graph/training_graph.h"

namespace weft::testing {
namespace {

constexpr int64_t kBatch = 12;
constexpr int64_t kSamples = 2 * kBatch + 1;  // the third batch has one sample
constexpr int64_t kSteps = 6;

// Devices that compute so slowly that splitting pays even in models as small as these.
CostModel SlowDevices(int count) {
  ClusterProfile profile = CostModel::OfSpec(ClusterSpec::Local(count, 1))->profile();
  for (DeviceProfile& device : profile.devices) {
    for (auto& [dtype, curve] : device.contraction) {
      for (RateCurve::Point& point : curve.points) point.per_second /= 1e5;
    }
    for (RateCurve* curve : {&device.elementwise, &device.movement}) {
      for (RateCurve::Point& point : curve->points) point.per_second /= 1e5;
    }
  }
  return CostModel::Create(profile).value();
}

class TensorProgramPlans : public ::testing::TestWithParam<std::string> {
 protected:
  TensorProgramPlans() : model_(BuildEquivalenceModel(GetParam(), kSamples).value()) {
    TrainingSpec spec;
    spec.optimizer.kind = "adam";
    graph_ = BuildTrainingGraph(model_.graph, spec).value();
    sized_ = GraphForSamples(graph_, kBatch, CpuNodeEvaluator()).value();
  }

  EquivalenceModel model_;
  Graph graph_;
  Graph sized_;
};

TEST_P(TensorProgramPlans, CostNoMoreThanTheBeamsAndTrainTheSame) {
  TrainingRun run;
  run.data = WriteDataFiles(model_, ::testing::TempDir());
  run.batch = kBatch;
  run.steps = kSteps;
  run.optimizer.kind = "adam";
  run.optimizer.learning_rate = 0.01;
  const auto single = RunGraph(model_.graph, run);
  ASSERT_TRUE(single.ok()) << single.status();
  int hints_for_made = 0;
  for (const int shards : {2, 3}) {
    const CostModel cost = SlowDevices(shards);
    TensorSplitOptions options;
    options.uncounted = &graph_;
    for (int worker = 0; worker < shards; ++worker) options.workers.push_back(worker);
    const auto beam = FindTensorSplit(sized_, cost, options);
    ASSERT_TRUE(beam.ok()) << beam.status();
    const auto split = SolveTensorSplit(sized_, cost, options);
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_LE(split->seconds, beam->seconds * (1 + 1e-9));
    EXPECT_EQ(split->min_seconds, split->seconds) << "it is not proven to be the best";
    const auto costs = TensorCosts::Create(sized_, cost, options).value();
    EXPECT_NEAR(costs->SecondsOf(split->shardings).value(), split->seconds, 1e-9 * split->seconds);
    run.workers = shards;
    run.plan = Plan();
    run.plan.mesh.tensor = shards;
    run.plan.tensor_shardings = split->shardings;
    std::string story = absl::StrCat(shards, " shards:");
    for (const auto& [name, sharding] : split->shardings) {
      absl::StrAppend(&story, " ", name, " ", sharding.ToString());
      hints_for_made += graph_.FindVariable(name) == nullptr;
    }
    EXPECT_FALSE(split->shardings.empty());
    const auto spread = RunGraph(model_.graph, run);
    ASSERT_TRUE(spread.ok()) << spread.status() << story;
    EXPECT_LE(LargestRelativeGap(spread->losses, single->losses), 1e-5) << story;
  }
  EXPECT_GT(hints_for_made, 0) << "the beam could have said it too";
}

INSTANTIATE_TEST_SUITE_P(Models, TensorProgramPlans, ::testing::ValuesIn(EquivalenceModelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weft::testing
