// A model's own training: losses and state against the formulas of what it says.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/testing/device_cluster.h"
#include "gmock/gmock.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"
#include "onnx_import/testing/training_models.h"
#include "onnx_import/training_info.h"
#include "ops/testing/test_tensors.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/graph/model_initialization.h"
#include "training/job/trainer.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSamples = 12;
constexpr int64_t kBatch = 4;
constexpr int64_t kSteps = 7;
constexpr char kVersion[] = "test";

struct State {
  std::vector<double> w;
  double b = 0;
  std::vector<double> v;
  std::vector<double> losses;
};

// On each device of tensor/testing/test_device.h.
class ModelTrainingInfoTest : public ::testing::TestWithParam<int> {
 protected:
  ModelTrainingInfoTest()
      : x_(testing::RandomTensor({kSamples, 2}, 1)), t_(testing::RandomTensor({kSamples, 1}, 2)) {
    Write("x", x_);
    Write("t", t_);
    data_spec_.batch = kBatch;
    data_spec_.shuffle = false;
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = "/" + input + ".npy";
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  static ImportedModel Step() {
    const auto file = ModelFile::Parse(testing::RegressionThatTrainsItselfBytes(), "self.onnx");
    EXPECT_TRUE(file.ok()) << file.status();
    auto step = ImportTrainingStep(*file);
    EXPECT_TRUE(step.ok()) << step.status();
    return *std::move(step);
  }

  absl::StatusOr<TrainResult> TrainOn(const Graph& model, int workers, int micro_batches,
                                      const std::string& loss = "softmax_cross_entropy") {
    JobSpec spec;
    spec.cluster = ClusterSpec::Local(workers, 1);
    spec.plan.micro_batches = micro_batches;
    const auto data = DataSet::Open(files_, data_spec_);
    if (!data.ok()) return data.status();
    TrainingSpec training;
    training.model_training_info = true;
    training.loss.kind = loss;
    const auto job = PrepareTraining(model, training, spec, *data);
    if (!job.ok()) return job.status();
    testing::DeviceCluster cluster(GetParam(), workers, NewDataSetFactory(files_), kVersion);
    Coordinator coordinator(cluster.clients());
    const absl::Status started = StartJob(coordinator, *job, spec, kVersion, {});
    if (!started.ok()) return started;
    losses_.clear();
    return Train(coordinator, *job, {.steps = kSteps},
                 [this](const TrainProgress& progress) { losses_.push_back(progress.loss); });
  }

  // What the algorithm says, in double.
  State Expected(std::vector<double> w, double b) const {
    State state{std::move(w), b, {0, 0}, {}};
    for (int64_t step = 0; step < kSteps; ++step) {
      double loss = 0;
      double dw[2] = {0, 0};
      double db = 0;
      for (int64_t i = 0; i < kBatch; ++i) {
        const int64_t row = (step * kBatch + i) % kSamples;
        const float* const x = x_.data<float>().data() + 2 * row;
        const double difference = x[0] * state.w[0] + x[1] * state.w[1] + state.b -
                                  t_.data<float>()[static_cast<size_t>(row)];
        loss += difference * difference / kBatch;
        for (int k = 0; k < 2; ++k) dw[k] += 2 * difference * x[k] / kBatch;
        db += 2 * difference / kBatch;
      }
      for (int k = 0; k < 2; ++k) {
        state.v[k] = 0.5 * state.v[k] + dw[k];
        state.w[k] -= 0.1 * state.v[k];
      }
      state.b -= 0.1 * db;
      state.losses.push_back(loss);
    }
    return state;
  }

  void ExpectState(const TrainResult& result, const State& expected, int64_t steps) const {
    ASSERT_EQ(losses_.size(), expected.losses.size());
    for (size_t i = 0; i < losses_.size(); ++i) {
      EXPECT_NEAR(losses_[i], expected.losses[i], 1e-6) << i;
    }
    const auto values = [&](const char* name) {
      return ToDoubles(result.parameters.at(name)).value();
    };
    for (size_t k = 0; k < 2; ++k) {
      EXPECT_NEAR(values("w")[k], expected.w[k], 1e-6);
      EXPECT_NEAR(values("v")[k], expected.v[k], 1e-6);
    }
    EXPECT_NEAR(values("b")[0], expected.b, 1e-6);
    EXPECT_EQ(values("steps")[0], static_cast<double>(steps));
  }

  testing::FakeFileSystem files_;
  DataSpec data_spec_;
  const Tensor x_;
  const Tensor t_;
  std::vector<double> losses_;
};

INSTANTIATE_TEST_SUITE_P(Devices, ModelTrainingInfoTest, testing::JobDevices(),
                         testing::JobDeviceName);

TEST_P(ModelTrainingInfoTest, DoesInEachStepWhatItSays) {
  const auto result = TrainOn(Step().graph, 1, 1);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectState(*result, Expected({1, 2}, 0.5), 3 + kSteps);
}

TEST_P(ModelTrainingInfoTest, BeginsWithItsInitializationWhenAskedTo) {
  ImportedModel step = Step();
  const auto set = InitializeModel(step);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(*set, 2);
  const auto result = TrainOn(step.graph, 1, 1);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectState(*result, Expected({0.5, -0.25}, 0.5), kSteps);
}

TEST_P(ModelTrainingInfoTest, TheStepsGraphIsWhole) {
  TrainingSpec training;
  training.model_training_info = true;
  const auto graph = BuildTrainingGraph(Step().graph, training);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(VerifyGraph(*graph).ok()) << VerifyGraph(*graph);
  ASSERT_EQ(graph->outputs().size(), 1u);
  EXPECT_EQ(graph->value(graph->outputs()[0]).name, kLossOutput);
}

TEST_P(ModelTrainingInfoTest, TheLossCanBeChosen) {
  const auto result = TrainOn(Step().graph, 1, 1, "output:square");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(losses_[0], Expected({1, 2}, 0.5).losses[0], 1e-6);  // a mean, as `error` is
  const auto missing = TrainOn(Step().graph, 1, 1, "output:eror");
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("--loss output:eror: the model has no value of that name"));
}

TEST_P(ModelTrainingInfoTest, TakesWholeBatchesOnOneWorker) {
  for (const auto& [workers, micro_batches] : {std::pair{2, 1}, std::pair{1, 2}}) {
    const auto result = TrainOn(Step().graph, workers, micro_batches);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("whole batches on one worker"));
  }
}

TEST_P(ModelTrainingInfoTest, AnUpdateThatDoesNotFitIsNamed) {
  ImportedModel step = Step();
  step.graph.SetVariableUpdate("w", *step.graph.FindValue("b_new"));
  const auto result = TrainOn(step.graph, 1, 1);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("update_binding of 'w' to 'b_new': 'w' is float32[2,1], its new value is "
                        "float32[1]"));
}

// Its step was made in one piece, which nobody could look into.
TEST_P(ModelTrainingInfoTest, AnObserverSeesItBeforeAndAfterItsGradients) {
  const ImportedModel step = Step();
  TrainingSpec training;
  training.model_training_info = true;
  std::vector<std::string> passes;
  std::vector<bool> has_gradient_nodes;
  const auto graph =
      BuildTrainingGraph(step.graph, training, [&](std::string_view pass, const Graph& seen) {
        passes.emplace_back(pass);
        const std::vector<NodeId> ids = seen.node_ids();
        has_gradient_nodes.push_back(std::any_of(
            ids.begin(), ids.end(), [&](NodeId id) { return seen.node(id).op == "Gradient"; }));
        return absl::OkStatus();
      });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(passes, ::testing::ElementsAre("expand_functions", "add_gradients", "add_updates"));
  EXPECT_THAT(has_gradient_nodes, ::testing::ElementsAre(true, false, false));
  // What it returns ends the making.
  const auto ended = BuildTrainingGraph(step.graph, training, [](std::string_view, const Graph&) {
    return absl::CancelledError("enough");
  });
  EXPECT_TRUE(absl::IsCancelled(ended.status())) << ended.status();
}

}  // namespace
}  // namespace weft
