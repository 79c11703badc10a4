#include "training/graph/training_mode.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/in_process_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/job/trainer.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSamples = 10;
constexpr int64_t kBatch = 5;
constexpr int64_t kFeatures = 3;
constexpr char kVersion[] = "test";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

ValueId Variable1D(Graph& graph, const std::string& name, std::vector<float> values,
                   bool trainable) {
  const auto size = static_cast<int64_t>(values.size());
  return graph.AddVariable(name, FloatType({size}), Tensor::Of<float>({size}, values), trainable);
}

// scores [N,3] = Dropout(norm(x) w), both in training mode or not.
struct Options {
  bool training = true;
  bool frozen_norm = false;
  bool frozen_weights = false;
  float ratio = 0.5f;
};
Graph Model(const Options& options) {
  Graph graph;
  GraphBuilder builder(graph);
  const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), kFeatures}));
  const ValueId scale = Variable1D(graph, "scale", {1, 0.5f, 2}, !options.frozen_norm);
  const ValueId bias = Variable1D(graph, "bias", {0, 0.1f, 0.2f}, !options.frozen_norm);
  const ValueId mean = Variable1D(graph, "mean", {0.3f, 0, -0.1f}, false);
  const ValueId var = Variable1D(graph, "var", {1, 2, 0.5f}, false);
  const std::vector<ValueId> norm =
      builder.Ops("", "BatchNormalization", {x, scale, bias, mean, var},
                  {{"training_mode", int64_t{options.training}}, {"momentum", 0.75f}},
                  options.training ? std::vector<bool>{true, true, true} : std::vector<bool>{true});
  const ValueId w =
      graph.AddVariable("w", FloatType({kFeatures, 3}), testing::RandomTensor({kFeatures, 3}, 1),
                        !options.frozen_weights);
  const ValueId product = builder.Op("MatMul", {norm[0], w});
  std::vector<ValueId> inputs = {product, builder.Scalar(DType::kFloat32, options.ratio)};
  if (options.training) inputs.push_back(builder.Constant(Tensor::Scalar<bool>(true)));
  const ValueId scores = builder.Op("Dropout", inputs);
  builder.Name(scores, "scores");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(scores);
  return graph;
}

const Node& OnlyNode(const Graph& graph, const std::string& op) {
  for (const NodeId id : graph.node_ids()) {
    if (graph.node(id).op == op) return graph.node(id);
  }
  ADD_FAILURE() << "no " << op;
  return graph.node(NodeId(0));
}

bool NormTrains(const Graph& graph) {
  return OnlyNode(graph, "BatchNormalization").attributes.Int("training_mode", 0) != 0;
}
bool Drops(const Graph& graph) { return OnlyNode(graph, "Dropout").inputs.size() == 3; }

TEST(TrainingModeTest, TheModelSaysWhatTrains) {
  Graph training = Model({});
  ASSERT_TRUE(EnterTraining(training, {}).ok());
  EXPECT_TRUE(NormTrains(training));
  EXPECT_TRUE(Drops(training));
  EXPECT_TRUE(training.FindVariable("mean")->update.valid());
  EXPECT_TRUE(training.FindVariable("var")->update.valid());
  Graph inference = Model({.training = false});
  ASSERT_TRUE(EnterTraining(inference, {}).ok());
  EXPECT_FALSE(NormTrains(inference));
  EXPECT_FALSE(Drops(inference));
  EXPECT_FALSE(inference.FindVariable("mean")->update.valid());
}

TEST(TrainingModeTest, PatternsTurnInferenceModelsOn) {
  Graph graph = Model({.training = false});
  ASSERT_TRUE(EnterTraining(graph, {"Batch*", "Drop*"}).ok());
  EXPECT_TRUE(NormTrains(graph));
  EXPECT_TRUE(Drops(graph));
  EXPECT_TRUE(graph.FindVariable("mean")->update.valid());
  const absl::Status status = EnterTraining(graph, {"MatMul*"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("--train-mode 'MatMul*' matches no node"));
}

TEST(TrainingModeTest, FrozenPartsStayAsInEvaluation) {
  Graph norm = Model({.frozen_norm = true});
  ASSERT_TRUE(EnterTraining(norm, {}).ok());
  EXPECT_FALSE(NormTrains(norm));
  EXPECT_FALSE(OnlyNode(norm, "BatchNormalization").outputs[1].valid());
  EXPECT_TRUE(Drops(norm));  // of what w makes
  EXPECT_FALSE(norm.FindVariable("mean")->update.valid());
  Graph all = Model({.frozen_norm = true, .frozen_weights = true});
  ASSERT_TRUE(EnterTraining(all, {}).ok());
  EXPECT_FALSE(Drops(all));
}

TEST(TrainingModeTest, EvaluationTrainsNothing) {
  Graph graph = Model({});
  ASSERT_TRUE(LeaveTraining(graph).ok());
  EXPECT_FALSE(NormTrains(graph));
  EXPECT_FALSE(Drops(graph));
}

TEST(TrainingModeTest, AnInputThatDecidesWhetherDropoutDropsIsFixed) {
  for (const bool training : {true, false}) {
    Graph graph = Model({});
    const ValueId mode = graph.AddInput("is_training", {ValueKind::kTensor, DType::kBool, Shape{}});
    Node& dropout = graph.node(OnlyNode(graph, "Dropout").id);
    dropout.inputs[2] = mode;
    ASSERT_TRUE((training ? EnterTraining(graph, {}) : LeaveTraining(graph)).ok());
    EXPECT_EQ(graph.inputs().size(), 1u);
    EXPECT_EQ(Drops(graph), training);
  }
}

// ---- Whole jobs.

class TrainingModeJobTest : public ::testing::Test {
 protected:
  TrainingModeJobTest() {
    x_ = testing::RandomTensor({kSamples, kFeatures}, 3);
    Write("x", x_);
    Write("labels", Tensor::Of<int64_t>({kSamples}, {0, 1, 2, 1, 1, 0, 2, 2, 0, 1}));
    data_spec_.batch = kBatch;
    training_.report_gradients = true;
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  absl::StatusOr<TrainResult> TrainOn(const Graph& model, int workers, int micro_batches,
                                      int64_t steps) {
    spec_.cluster = ClusterSpec::Local(workers, 1);
    spec_.plan = Plan();
    spec_.plan.micro_batches = micro_batches;
    spec_.plan.strict = true;
    spec_.batch_policy.statistics_of_micro_batches = true;
    const auto data = DataSet::Open(files_, data_spec_);
    if (!data.ok()) return data.status();
    training_.optimizer.learning_rate = rate_;
    const auto job = PrepareTraining(model, training_, spec_, *data);
    if (!job.ok()) return job.status();
    cluster_ = std::make_unique<InProcessCluster>(workers, NewDataSetFactory(files_), kVersion);
    coordinator_ = std::make_unique<Coordinator>(cluster_->clients());
    const absl::Status started = StartJob(*coordinator_, *job, spec_, kVersion, {});
    if (!started.ok()) return started;
    losses_.clear();
    return Train(*coordinator_, *job, {.steps = steps, .report_gradients = true},
                 [this](const TrainProgress& progress) { losses_.push_back(progress.loss); });
  }

  testing::FakeFileSystem files_;
  DataSpec data_spec_;
  Tensor x_;
  JobSpec spec_;
  TrainingSpec training_;
  std::unique_ptr<InProcessCluster> cluster_;
  std::unique_ptr<Coordinator> coordinator_;
  double rate_ = 0.1;
  std::vector<double> losses_;
};

// avg = momentum avg + (1 - momentum) statistic, for micro-batches of these sizes one by one.
std::pair<std::vector<double>, std::vector<double>> RunningByHand(const Tensor& x,
                                                                  const std::vector<int>& sizes) {
  std::vector<double> mean = {0.3, 0, -0.1};
  std::vector<double> var = {1, 2, 0.5};
  const std::vector<double> values = *ToDoubles(x);
  int64_t first = 0;
  for (const int size : sizes) {
    for (int64_t c = 0; c < kFeatures; ++c) {
      double sum = 0, square = 0;
      for (int64_t n = first; n < first + size; ++n) sum += values[n * kFeatures + c] / size;
      for (int64_t n = first; n < first + size; ++n) {
        square += std::pow(values[n * kFeatures + c] - sum, 2) / size;
      }
      mean[c] = 0.75 * mean[c] + 0.25 * sum;
      var[c] = 0.75 * var[c] + 0.25 * square;
    }
    first += size;
  }
  return {mean, var};
}

TEST_F(TrainingModeJobTest, RunningStatisticsFollowTheMicroBatchesInOrderOnAnyWorkers) {
  const Graph model = Model({.ratio = 0});
  std::map<int, std::vector<int>> sizes = {{1, {5, 5}}, {2, {3, 2, 3, 2}}};
  for (const int workers : {1, 2}) {
    for (const int micro_batches : {1, 2}) {
      if (micro_batches < workers) continue;
      SCOPED_TRACE(absl::StrCat(workers, " workers, ", micro_batches, " micro-batches"));
      const auto result = TrainOn(model, workers, micro_batches, 2);
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_TRUE(result->parameters.contains("mean"));
      const auto [mean, var] = RunningByHand(x_, sizes[micro_batches]);
      for (int64_t c = 0; c < kFeatures; ++c) {
        EXPECT_NEAR(result->parameters.at("mean").data<float>()[c], mean[c], 1e-6) << c;
        EXPECT_NEAR(result->parameters.at("var").data<float>()[c], var[c], 1e-6) << c;
      }
    }
  }
}

TEST_F(TrainingModeJobTest, DropoutOfASampleDependsOnNeitherMicroBatchesNorWorkers) {
  const Graph model = Model({.frozen_norm = true});
  const auto whole = TrainOn(model, 1, 1, 4);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::vector<double> losses = losses_;
  for (const auto& [workers, micro_batches] : {std::pair{1, 5}, {2, 5}, {2, 3}}) {
    SCOPED_TRACE(absl::StrCat(workers, " workers, ", micro_batches, " micro-batches"));
    const auto cut = TrainOn(model, workers, micro_batches, 4);
    ASSERT_TRUE(cut.ok()) << cut.status();
    for (size_t step = 0; step < losses.size(); ++step) {
      EXPECT_NEAR(losses_[step], losses[step], 1e-6) << step;
    }
    const std::vector<double> gradient = *ToDoubles(cut->gradients.at("w"));
    const std::vector<double> expected = *ToDoubles(whole->gradients.at("w"));
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(gradient[i], expected[i], 1e-6) << i;
  }
}

TEST_F(TrainingModeJobTest, DropoutDrawsAnewEachStep) {
  // The same samples in every step, and weights that stay: only the mask differs.
  data_spec_.files.clear();
  Write("x", Tensor::Of<float>({kBatch, kFeatures}, std::vector<float>(15, 1.5f)));
  Write("labels", Tensor::Of<int64_t>({kBatch}, {0, 1, 2, 1, 1}));
  rate_ = 1e-12;
  Graph model = Model({.frozen_norm = true});
  const auto result = TrainOn(model, 1, 1, 3);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(std::abs(losses_[0] - losses_[1]), 1e-3);
  EXPECT_GT(std::abs(losses_[1] - losses_[2]), 1e-3);
}

}  // namespace
}  // namespace weft
