// Training in float16: overflows are skipped, counted and survived, the same wherever they happen.
#include "training/graph/loss_scale.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/testing/device_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/testing/fake_file_system.h"
#include "training/checkpoint/checkpointer.h"
#include "training/data/data_file.h"
#include "training/job/resume.h"
#include "training/job/trainer.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kVersion[] = "test";
constexpr int64_t kBatch = 4;
constexpr float kInitialScale = 1024;

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// scores [N,3] = tanh(x [N,4] times v [4,6]) times w [6,3] plus b [3].
Graph Model() {
  Graph graph;
  const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), 4}));
  const ValueId v =
      graph.AddVariable("v", FloatType({4, 6}), testing::RandomTensor({4, 6}, 4), true);
  const ValueId w =
      graph.AddVariable("w", FloatType({6, 3}), testing::RandomTensor({6, 3}, 1), true);
  const ValueId b = graph.AddVariable("b", FloatType({3}), testing::RandomTensor({3}, 2), true);
  GraphBuilder builder(graph);
  const ValueId hidden = builder.Op("Tanh", {builder.Op("MatMul", {x, v})});
  const ValueId scores = builder.Op("Add", {builder.Op("MatMul", {hidden, w}), b});
  builder.Name(hidden, "hidden");
  builder.Name(scores, "scores");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(scores);
  return graph;
}

struct Outcome {
  std::vector<double> scales;    // by step
  std::vector<int64_t> skipped;  // so far, by step
  std::vector<double> losses;    // by step
  std::map<std::string, Tensor> parameters;
};

// On each device of tensor/testing/test_device.h.
class LossScaleTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    training_.optimizer.kind = "adam";
    training_.optimizer.learning_rate = 0.01;
    training_.precision = Precision::kFloat16;
    training_.loss_scale.initial = kInitialScale;
  }
  void TearDown() override {
    if (!root_.empty()) std::filesystem::remove_all(root_);
  }

  // Batches of random samples; those of `planted` hold a number that float16 has not.
  void WriteData(const std::vector<int>& batches, const std::vector<int>& planted) {
    std::vector<float> x;
    std::vector<int64_t> labels;
    for (const int batch : batches) {
      const Tensor rows = testing::RandomTensor({kBatch, 4}, 10 + batch);
      x.insert(x.end(), rows.data<float>().begin(), rows.data<float>().end());
      for (int64_t i = 0; i < kBatch; ++i) labels.push_back((batch + i) % 3);
      for (const int bad : planted) {
        if (bad == batch) x[x.size() - 2] = 1e6f;
      }
    }
    const auto samples = static_cast<int64_t>(labels.size());
    data_spec_ = DataSpec();
    data_spec_.batch = kBatch;
    Write("x", Tensor::Of<float>({samples, 4}, x));
    Write("labels", Tensor::Of<int64_t>({samples}, labels));
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  absl::StatusOr<Outcome> TryTrain(int64_t steps, Mesh mesh = {1, 1, 1}, int zero = 0) {
    JobSpec spec;
    spec.cluster = ClusterSpec::Local(mesh.size(), 1);
    spec.plan.mesh = mesh;
    spec.plan.micro_batches = 2;
    spec.plan.zero = zero;
    spec.plan.strict = mesh.tensor == 1;
    spec.checkpoints = !root_.empty();
    if (mesh.tensor > 1) {
      spec.plan.tensor_shardings = {{"v", AxisSharding::Split(1)}, {"w", AxisSharding::Split(0)}};
    }
    auto data = DataSet::Open(files_, data_spec_);
    if (!data.ok()) return data.status();
    auto job = PrepareTraining(Model(), training_, spec, *data);
    if (!job.ok()) return job.status();
    testing::DeviceCluster cluster(GetParam(), mesh.size(), NewDataSetFactory(files_), kVersion,
                                   &RealFileSystem());
    Coordinator coordinator(cluster.clients());
    absl::Status status = StartJob(coordinator, *job, spec, kVersion, {});
    if (!status.ok()) return status;
    TrainOptions options;
    options.steps = steps;
    std::optional<CheckpointStore> store;
    std::optional<Checkpointer> checkpointer;
    if (!root_.empty()) {
      store.emplace(RealFileSystem(), RealFolders(), root_);
      std::vector<std::string> notes;
      const auto newest = store->OpenNewest(notes);
      if (!newest.ok()) return newest.status();
      if (newest->has_value()) {
        status = Restore(coordinator, *job, **newest);
        if (!status.ok()) return status;
        options.first_step = (*newest)->index().step;
      }
      checkpointer.emplace(*store, CheckpointJob(), CheckpointOptions(), options.first_step,
                           RealClock(), [](const std::string&) {});
      options.checkpointer = &*checkpointer;
    }
    Outcome outcome;
    auto result = Train(coordinator, *job, options, [&](const TrainProgress& done) {
      outcome.scales.push_back(done.loss_scale);
      outcome.skipped.push_back(done.skipped_steps);
      outcome.losses.push_back(done.loss);
    });
    if (!result.ok()) return result.status();
    outcome.parameters = std::move(result->parameters);
    return outcome;
  }

  Outcome Trained(int64_t steps, Mesh mesh = {1, 1, 1}, int zero = 0) {
    auto outcome = TryTrain(steps, mesh, zero);
    EXPECT_TRUE(outcome.ok()) << mesh.ToString() << ": " << outcome.status();
    return outcome.value_or(Outcome());
  }

  static void ExpectSameParameters(const Outcome& a, const Outcome& b, const std::string& what) {
    ASSERT_EQ(a.parameters.size(), 3u) << what;
    ASSERT_EQ(b.parameters.size(), 3u) << what;
    for (const auto& [name, value] : a.parameters) {
      EXPECT_TRUE(BitwiseEqual(b.parameters.at(name), value)) << name << ", " << what;
    }
  }

  testing::FakeFileSystem files_;
  DataSpec data_spec_;
  TrainingSpec training_;
  std::string root_;  // of checkpoints; empty: none
};

INSTANTIATE_TEST_SUITE_P(Devices, LossScaleTest, testing::JobDevices(), testing::JobDeviceName);

TEST_P(LossScaleTest, AnOverflowSkipsItsStepHalvesTheScaleAndLeavesNoTrace) {
  WriteData({0, 1, 2, 3, 4, 5}, {2});
  const Outcome disturbed = Trained(6);
  EXPECT_THAT(disturbed.skipped, ElementsAre(0, 0, 1, 1, 1, 1));
  EXPECT_THAT(disturbed.scales, ElementsAre(1024, 1024, 1024, 512, 512, 512));
  // Adam has not seen the step either: as if the batch had not been there.
  WriteData({0, 1, 3, 4, 5}, {});
  const Outcome without = Trained(5);
  EXPECT_THAT(without.skipped, Each(0));
  ExpectSameParameters(without, disturbed, "without the batch");
}

TEST_P(LossScaleTest, TheWholeMeshSkips) {
  WriteData({0, 1, 2, 3, 4, 5}, {2});
  training_.clip_norm = 0.5;
  training_.average_decay = 0.9;
  const Outcome single = Trained(6);
  EXPECT_THAT(single.skipped, ElementsAre(0, 0, 1, 1, 1, 1));
  for (const auto& [mesh, zero] : std::vector<std::pair<Mesh, int>>{
           {{2, 1, 1}, 0}, {{2, 1, 1}, 2}, {{2, 1, 1}, 3}, {{1, 1, 2}, 0}, {{2, 1, 2}, 1}}) {
    const Outcome spread = Trained(6, mesh, zero);
    const std::string what = absl::StrCat(mesh.ToString(), ", zero=", zero);
    EXPECT_EQ(spread.skipped, single.skipped) << what;
    EXPECT_EQ(spread.scales, single.scales) << what;
    ExpectSameParameters(single, spread, what);
  }
  const Outcome split = Trained(6, {1, 2, 1});
  EXPECT_EQ(split.skipped, single.skipped);
  EXPECT_EQ(split.scales, single.scales);
}

TEST_P(LossScaleTest, AResumedRunKnowsScaleAndCounters) {
  WriteData({0, 1, 2, 3, 4, 5, 6, 7}, {1, 6});
  training_.loss_scale.growth_interval = 3;
  const Outcome whole = Trained(8);
  EXPECT_THAT(whole.skipped, ElementsAre(0, 1, 1, 1, 1, 1, 2, 2));
  EXPECT_THAT(whole.scales, ElementsAre(1024, 1024, 512, 512, 512, 1024, 1024, 512));
  char pattern[] = "/tmp/weft-loss-scale-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  root_ = pattern;
  Trained(4);
  const Outcome rest = Trained(8);
  EXPECT_THAT(rest.skipped, ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(rest.scales, ElementsAre(512, 1024, 1024, 512));
  ExpectSameParameters(whole, rest, "resumed");
}

TEST_P(LossScaleTest, GoodStepsInARowDoubleTheScale) {
  WriteData({0, 1, 2, 3, 4, 5}, {});
  training_.loss_scale.growth_interval = 2;
  EXPECT_THAT(Trained(6).scales, ElementsAre(1024, 1024, 2048, 2048, 4096, 4096));
}

TEST_P(LossScaleTest, TheScaleIsNoPartOfTheResult) {
  WriteData({0, 1, 2, 3}, {});
  training_.clip_norm = 0.1;
  const Outcome one = Trained(4);
  training_.loss_scale.initial = 4096;
  ExpectSameParameters(one, Trained(4), "another scale");
}

TEST_P(LossScaleTest, ALossThatIsNeverFiniteEndsTheRun) {
  std::vector<int> batches;
  for (int i = 0; i < 40; ++i) batches.push_back(i);
  WriteData(batches, batches);
  const auto outcome = TryTrain(40);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kOutOfRange);
  // 34 halvings take the scale to the smallest float16; the next is too many.
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("step 35"));
}

TEST_P(LossScaleTest, EveryVariableThatAStepChangesIsSelected) {
  training_.average_decay = 0.9;
  const auto graph = BuildTrainingGraph(Model(), training_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  int changed = 0;
  for (const Variable& variable : graph->variables()) {
    if (!variable.update.valid()) continue;
    ++changed;
    EXPECT_EQ(graph->node(graph->value(variable.update).producer).op, "Where") << variable.name;
  }
  EXPECT_EQ(changed, 3 * 4 + 3);  // weight, m, v and average of each; scale and counters
}

TEST(LossScaleSpecTest, NumbersOutOfRangeAreNamed) {
  const auto refusal = [](const LossScaleSpec& spec) {
    return std::string(ValidateLossScale(spec).message());
  };
  EXPECT_THAT(refusal({.initial = 0}), HasSubstr("the loss scale is 0"));
  EXPECT_THAT(refusal({.growth = 1}), HasSubstr("the growth of the loss scale is 1"));
  EXPECT_THAT(refusal({.backoff = 1}), HasSubstr("the backoff of the loss scale is 1"));
  EXPECT_THAT(refusal({.growth_interval = 0}), HasSubstr("growth interval"));
  EXPECT_EQ(refusal({}), "");
}

}  // namespace
}  // namespace weft
