// What worker processes are charged for by their control groups, against the requirement that was
// reported before the first step. Skipped aloud where no control group can be made.
//
// WEFT_WORKER_PROGRAM: what to start as a worker.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/sharding.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "placement/files/plan_file.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/memory_groups.h"
#include "tests/testing/training_run.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 32;
constexpr int64_t kInputs = 256;
constexpr int64_t kClasses = 16;
constexpr double kMebibyte = 1 << 20;

// `layers` products with square matrices of `width`, Relu between: 4 width^2 bytes each.
EquivalenceModel BigMlp(int64_t width, int layers, int64_t batch) {
  EquivalenceModel model;
  model.name = "big_mlp";
  GraphBuilder builder(model.graph);
  uint64_t seed = 0;
  const auto linear = [&](ValueId x, const std::string& name, int64_t from, int64_t to) {
    builder.set_name_prefix(name + "/");
    const double spread = std::sqrt(3.0 / static_cast<double>(from));
    const auto weight = [&](const std::string& suffix, Shape shape, double range) {
      return model.graph.AddVariable(name + suffix, {ValueKind::kTensor, DType::kFloat32, shape},
                                     RandomTensor(shape, ++seed, -range, range), true);
    };
    const ValueId product = builder.Op("MatMul", {x, weight(".weight", {from, to}, spread)});
    return builder.Op("Add", {product, weight(".bias", {to}, 0.01)});
  };
  const SymbolicShape sample(std::vector<Dim>{Dim::Symbol("N"), Dim(kInputs)});
  ValueId h = model.graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, sample});
  h = builder.Op("Relu", {linear(h, "first", kInputs, width)});
  for (int layer = 0; layer < layers; ++layer) {
    h = builder.Op("Relu", {linear(h, absl::StrCat("layer", layer), width, width)});
  }
  model.graph.AddOutput(linear(h, "last", width, kClasses));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  const int64_t samples = 2 * batch;
  model.data["x"] = RandomTensor({samples, kInputs}, 99);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < samples; ++i) labels.push_back(i * 7 % kClasses);
  model.data["labels"] = Int64s(labels);
  return model;
}

// Layers by turns by columns and by rows (Megatron).
std::map<std::string, AxisSharding> TensorShardings(int layers) {
  std::map<std::string, AxisSharding> shardings;
  for (int layer = 0; layer < layers; ++layer) {
    const std::string name = absl::StrCat("layer", layer);
    shardings[name + ".weight"] = AxisSharding::Split(layer % 2 == 0 ? 1 : 0);
    if (layer % 2 == 0) shardings[name + ".bias"] = AxisSharding::Split(0);
  }
  return shardings;
}

class Memory : public ::testing::Test {
 protected:
  // One of each test's; the model's parameters take 4 (width^2 layers + 272 width) bytes.
  void Build(int64_t width, int layers, int64_t batch = kBatch) {
    model_ = BigMlp(width, layers, batch);
    layers_ = layers;
    run_.data = WriteDataFiles(model_, ::testing::TempDir());
    run_.batch = batch;
    run_.steps = 3;
    run_.optimizer.kind = "adam";
    run_.optimizer.learning_rate = 0.001;
    run_.plan.micro_batches = 4;
  }

  static std::string Program() {
    const char* const program = std::getenv("WEFT_WORKER_PROGRAM");
    return program == nullptr ? "" : program;
  }

  // Runs the plan on a process per rank, each in a group of its own. False: skipped.
  bool RunInGroups(const Plan& plan, int64_t limit_bytes, TrainingOutcome& outcome,
                   std::vector<int64_t>& peaks) {
    std::string why;
    const std::unique_ptr<MemoryGroups> groups =
        MemoryGroups::Create(plan.mesh.size(), limit_bytes, why);
    if (groups == nullptr) {
      skipped_ = why;
      return false;
    }
    TrainingRun run = run_;
    run.plan = plan;
    run.workers = plan.mesh.size();
    run.worker_command = groups->Command(Program());
    auto result = RunGraph(model_.graph, run);
    if (!result.ok()) {
      ADD_FAILURE() << result.status();
      return false;
    }
    outcome = *std::move(result);
    peaks.clear();
    for (int worker = 0; worker < run.workers; ++worker) peaks.push_back(groups->PeakBytes(worker));
    return true;
  }

  // The peak is within the requirement, and at least nine tenths of it.
  static void ExpectRequirement(const std::string& name, const TrainingOutcome& outcome,
                                const std::vector<int64_t>& peaks) {
    for (size_t rank = 0; rank < peaks.size(); ++rank) {
      const MemoryRequirement& requirement = outcome.predicted[rank].requirement;
      const auto predicted = static_cast<double>(requirement.total());
      const auto peak = static_cast<double>(peaks[rank]);
      std::printf("%-8s rank %zu: peak %.1f MiB, %.1f %% of %s\n", name.c_str(), rank,
                  peak / kMebibyte, 100 * peak / predicted, DescribeMemory(requirement).c_str());
      EXPECT_LE(peak, predicted) << name << " rank " << rank;
      EXPECT_GE(peak, 0.9 * predicted) << name << " rank " << rank;
      // What the worker says of itself is what its group says.
      EXPECT_TRUE(outcome.memory[rank].of_control_group);
      EXPECT_LE(outcome.memory[rank].peak_bytes, peaks[rank]);
    }
  }

  EquivalenceModel model_;
  TrainingRun run_;
  int layers_ = 0;
  std::string skipped_;  // why
};
using MemoryOfPlans = Memory;
using MemoryLimits = Memory;

TEST_F(Memory, OfTwoReplicasIsTheRequirement) {
  Build(1536, 7);  // 64 MiB of parameters
  Plan plan = run_.plan;
  plan.mesh.data = 2;
  TrainingOutcome outcome;
  std::vector<int64_t> peaks;
  if (!RunInGroups(plan, 0, outcome, peaks)) {
    ASSERT_FALSE(skipped_.empty());
    GTEST_SKIP() << skipped_;
  }
  ExpectRequirement("dp=2", outcome, peaks);
  // At least the 256 MiB from which on the requirement is held to account.
  EXPECT_GE(outcome.predicted[0].requirement.total(), int64_t{256} << 20);
}

// Split state lowers the peak by what the requirements say, to 6 % of the unsplit one: what they
// say of the transport is a bound, of which one run uses more than another.
TEST_F(MemoryOfPlans, FallsAsPredictedWithZero) {
  Build(2048, 6);  // 98 MiB of parameters
  double predicted_plain = 0;
  double peak_plain = 0;
  for (const int zero : {0, 1, 2, 3}) {
    Plan plan = run_.plan;
    plan.mesh.data = 2;
    plan.zero = zero;
    TrainingOutcome outcome;
    std::vector<int64_t> peaks;
    if (!RunInGroups(plan, 0, outcome, peaks)) {
      ASSERT_FALSE(skipped_.empty());
      GTEST_SKIP() << skipped_;
    }
    ExpectRequirement(absl::StrCat("zero=", zero), outcome, peaks);
    const auto predicted = static_cast<double>(outcome.predicted[0].requirement.total());
    const auto peak = static_cast<double>(peaks[0]);
    if (zero == 0) {
      predicted_plain = predicted;
      peak_plain = peak;
      continue;
    }
    std::printf("zero=%d lowers the peak by %.1f MiB, predicted %.1f MiB\n", zero,
                (peak_plain - peak) / kMebibyte, (predicted_plain - predicted) / kMebibyte);
    EXPECT_GT(peak_plain - peak, 0.1 * peak_plain);
    EXPECT_NEAR(peak_plain - peak, predicted_plain - predicted, 0.06 * predicted_plain);
  }
}

// Activations of 4 MiB in 63 layers, of which eight segments keep what is between them and what is
// inside one.
TEST_F(MemoryOfPlans, FallsAsPredictedWithRecomputation) {
  Build(128, 62, 8192);
  run_.steps = 2;
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const int segments : {0, 8}) {
    Plan plan = run_.plan;
    plan.micro_batches = 1;
    plan.recompute_segments = segments;
    TrainingOutcome outcome;
    std::vector<int64_t> peaks;
    if (!RunInGroups(plan, 0, outcome, peaks)) {
      ASSERT_FALSE(skipped_.empty());
      GTEST_SKIP() << skipped_;
    }
    ExpectRequirement(absl::StrCat("segments=", segments), outcome, peaks);
    predicted.push_back(static_cast<double>(outcome.predicted[0].requirement.total()));
    measured.push_back(static_cast<double>(peaks[0]));
  }
  const double saved = predicted[0] - predicted[1];
  std::printf("8 segments lower the peak by %.1f MiB, predicted %.1f MiB\n",
              (measured[0] - measured[1]) / kMebibyte, saved / kMebibyte);
  EXPECT_GE(predicted[0], 256 * kMebibyte);
  EXPECT_NEAR(saved / kMebibyte, 4 * (63 - 7 - 8), 12);
  EXPECT_NEAR(measured[0] - measured[1], saved, 0.03 * predicted[0]);
}

TEST_F(MemoryOfPlans, OfTensorAndPipelineParallelismIsTheRequirement) {
  Build(3072, 6);  // 219 MiB of parameters
  Plan tensor = run_.plan;
  tensor.mesh.tensor = 2;
  tensor.tensor_shardings = TensorShardings(layers_);
  Plan pipeline = run_.plan;
  pipeline.mesh.pipeline = 2;
  pipeline.schedule = "1f1b";
  for (const auto& [name, plan] : {std::pair("tp=2", tensor), std::pair("pp=2", pipeline)}) {
    TrainingOutcome outcome;
    std::vector<int64_t> peaks;
    if (!RunInGroups(plan, 0, outcome, peaks)) {
      ASSERT_FALSE(skipped_.empty());
      GTEST_SKIP() << skipped_;
    }
    ExpectRequirement(name, outcome, peaks);
  }
}

// Parameters, optimizer state, gradients and activations exceed what any one process may have.
TEST_F(MemoryLimits, AModelLargerThanAProcessTrainsOnFourByAPlanFile) {
  constexpr int64_t kLimit = int64_t{160} << 20;
  Build(1536, 7);  // 64 MiB of parameters, 192 MiB with Adam's state
  const auto plan = ParsePlanFile(R"(
mesh: {tensor: 2, pipeline: 2}
micro_batches: 4
schedule: 1f1b
stages:
  "first/*": 0
  "layer0/*": 0
  "layer1/*": 0
  "layer2/*": 0
  "layer3/*": 0
  "layer4/*": 1
  "layer5/*": 1
  "layer6/*": 1
  "last/*": 1
tensor_shardings:
  layer0.weight: S(1)
  layer0.bias: S(0)
  layer1.weight: S(0)
  layer2.weight: S(1)
  layer2.bias: S(0)
  layer3.weight: S(0)
  layer4.weight: S(1)
  layer4.bias: S(0)
  layer5.weight: S(0)
  layer6.weight: S(1)
  layer6.bias: S(0)
  last.weight: S(0)
)",
                                  "hand.yaml");
  ASSERT_TRUE(plan.ok()) << plan.status();

  TrainingRun limited = run_;
  limited.memory_per_worker = kLimit;
  limited.worker_command = {Program(), "worker"};
  const auto refused = RunGraph(model_.graph, limited);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  const std::string message(refused.status().message());
  EXPECT_THAT(message, HasSubstr("worker:0 may have 160 MiB of memory (what the job gives it)"));
  EXPECT_THAT(message, HasSubstr("and needs "));
  EXPECT_THAT(message, HasSubstr("variables 19"));
  EXPECT_THAT(message, HasSubstr("refused before its first step"));

  TrainingOutcome outcome;
  std::vector<int64_t> peaks;
  if (!RunInGroups(*plan, kLimit, outcome, peaks)) {
    ASSERT_FALSE(skipped_.empty());
    GTEST_SKIP() << skipped_;
  }
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    EXPECT_EQ(outcome.predicted[rank].limit.bytes, kLimit) << outcome.predicted[rank].limit.source;
    EXPECT_GT(peaks[rank], 0);
    EXPECT_LE(peaks[rank], outcome.predicted[rank].requirement.total());
  }
  const auto alone = RunGraph(model_.graph, run_);
  ASSERT_TRUE(alone.ok()) << alone.status();
  ASSERT_EQ(alone->losses.size(), 3u);
  EXPECT_LE(LargestRelativeGap(outcome.losses, alone->losses), 1e-5);
}

}  // namespace
}  // namespace weft::testing
