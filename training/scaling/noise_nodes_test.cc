// Measuring steps on workers of this process: two linear layers under a squared error, against the
// gradients of single samples, written out in double.
#include "training/scaling/noise_nodes.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/testing/device_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/job/trainer.h"
#include "training/scaling/noise_scale.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kInputs = 5;
// So many that three replicas sum the gradients in a ring, each part of a bucket in its own order.
constexpr int64_t kHidden = 320;
constexpr int64_t kOutputs = 4;
constexpr char kVersion[] = "test";

ValueType MatrixType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// y [N,4] = (x [N,5] times v [5,320]) times w [320,4].
Graph LinearLayers() {
  Graph graph;
  const ValueId x = graph.AddInput("x", MatrixType({Dim::Symbol("N"), kInputs}));
  const ValueId v = graph.AddVariable("v", MatrixType({kInputs, kHidden}),
                                      testing::RandomTensor({kInputs, kHidden}, 1), true);
  const ValueId w = graph.AddVariable("w", MatrixType({kHidden, kOutputs}),
                                      testing::RandomTensor({kHidden, kOutputs}, 2), true);
  GraphBuilder builder(graph);
  const ValueId hidden = builder.Op("MatMul", {x, v});
  const ValueId y = builder.Op("MatMul", {hidden, w});
  builder.Name(y, "y");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(y);
  return graph;
}

using Vector = std::vector<double>;

double SquareOf(const Vector& a) {
  double square = 0;
  for (const double x : a) square += x * x;
  return square;
}

// The gradient of the mean of the squares of sample n's errors, for v and then w.
Vector SampleGradient(const Vector& x, const Vector& labels, int64_t n) {
  static const Graph* const model = new Graph(LinearLayers());
  static const Vector v = *ToDoubles(model->FindVariable("v")->initial);
  static const Vector w = *ToDoubles(model->FindVariable("w")->initial);
  Vector hidden(kHidden), delta(kOutputs), back(kHidden);
  for (int64_t h = 0; h < kHidden; ++h) {
    for (int64_t i = 0; i < kInputs; ++i) hidden[h] += x[n * kInputs + i] * v[i * kHidden + h];
  }
  for (int64_t o = 0; o < kOutputs; ++o) {
    double y = 0;
    for (int64_t h = 0; h < kHidden; ++h) y += hidden[h] * w[h * kOutputs + o];
    delta[o] = 2 * (y - labels[n * kOutputs + o]) / kOutputs;
    for (int64_t h = 0; h < kHidden; ++h) back[h] += delta[o] * w[h * kOutputs + o];
  }
  Vector gradient;
  for (int64_t i = 0; i < kInputs; ++i) {
    for (int64_t h = 0; h < kHidden; ++h) gradient.push_back(x[n * kInputs + i] * back[h]);
  }
  for (int64_t h = 0; h < kHidden; ++h) {
    for (int64_t o = 0; o < kOutputs; ++o) gradient.push_back(hidden[h] * delta[o]);
  }
  return gradient;
}

// The mean of rows [first, last).
Vector MeanOf(const std::vector<Vector>& rows, int64_t first, int64_t last) {
  Vector mean(rows.front().size());
  for (int64_t n = first; n < last; ++n) {
    for (size_t i = 0; i < mean.size(); ++i)
      mean[i] += rows[n][i] / static_cast<double>(last - first);
  }
  return mean;
}

// Hears where stretches of steps begin.
class Stretches final : public LoopHook {
 public:
  int64_t NextCall(int64_t step) const override {
    asked_.insert(step);
    return std::numeric_limits<int64_t>::max();
  }
  absl::StatusOr<std::string> Call(Coordinator&, int64_t) override { return std::string(); }
  const std::set<int64_t>& asked() const { return asked_; }

 private:
  mutable std::set<int64_t> asked_;
};

// On each device of tensor/testing/test_device.h.
class NoiseNodesTest : public ::testing::TestWithParam<int> {
 protected:
  void MakeSamples(int64_t samples) {
    samples_ = samples;
    Tensor x = testing::RandomTensor({samples, kInputs}, 3);
    Tensor labels = testing::RandomTensor({samples, kOutputs}, 4);
    Write("x", x);
    Write("labels", labels);
    gradients_.clear();
    for (int64_t n = 0; n < samples; ++n) {
      gradients_.push_back(SampleGradient(*ToDoubles(x), *ToDoubles(labels), n));
    }
    training_.loss.kind = "mse";
    training_.optimizer.learning_rate = 0;
    training_.measure_noise = true;
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  struct Outcome {
    std::vector<std::optional<NoiseMeasurement>> noise;  // by step
    std::vector<std::string> programs;                   // by step
    std::vector<double> losses;
    std::map<std::string, Tensor> parameters;
  };

  absl::StatusOr<Outcome> TryTrain(const Plan& plan, int64_t steps, int64_t every) {
    JobSpec spec;
    spec.cluster = ClusterSpec::Local(plan.mesh.size(), 1);
    spec.plan = plan;
    spec.measures_only = measures_only_;
    if (plan.mesh.tensor > 1) {
      spec.plan.tensor_shardings = {{"v", AxisSharding::Split(1)}, {"w", AxisSharding::Split(0)}};
    }
    auto data = DataSet::Open(files_, data_spec_);
    if (!data.ok()) return data.status();
    auto job = PrepareTraining(LinearLayers(), training_, spec, *data);
    if (!job.ok()) return job.status();
    testing::DeviceCluster cluster(GetParam(), plan.mesh.size(), NewDataSetFactory(files_),
                                   kVersion);
    Coordinator coordinator(cluster.clients());
    const absl::Status started = StartJob(coordinator, *job, spec, kVersion, {});
    if (!started.ok()) return started;
    Outcome outcome;
    TrainOptions options = {.steps = steps, .noise_every = every};
    if (hook_ != nullptr) options.hooks.push_back(hook_);
    auto result = Train(coordinator, *job, options, [&outcome](const TrainProgress& done) {
      outcome.noise.push_back(done.noise);
      outcome.programs.push_back(done.program);
      outcome.losses.push_back(done.loss);
    });
    if (!result.ok()) return result.status();
    outcome.parameters = std::move(result->parameters);
    return outcome;
  }

  Outcome Trained(const Plan& plan, int64_t steps, int64_t every) {
    auto outcome = TryTrain(plan, steps, every);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.value_or(Outcome());
  }

  static Plan PlanOf(const Mesh& mesh, int micro_batches, int zero = 0) {
    Plan plan;
    plan.mesh = mesh;
    plan.micro_batches = micro_batches;
    plan.zero = zero;
    return plan;
  }

  testing::FakeFileSystem files_;
  DataSpec data_spec_;
  TrainingSpec training_;
  LoopHook* hook_ = nullptr;  // borrowed
  bool measures_only_ = false;
  int64_t samples_ = 0;
  std::vector<Vector> gradients_;  // of samples
};

INSTANTIATE_TEST_SUITE_P(Devices, NoiseNodesTest, ::testing::Values(-1, 0, 1),
                         testing::JobDeviceName);

// By the spread of the means of micro-batches around the mean of the batch.
TEST_P(NoiseNodesTest, AStepMeasuresTheSpreadOfItsMicroBatchesOnAnyMesh) {
  MakeSamples(13);
  data_spec_.batch = 13;
  const std::vector<int64_t> cuts = {0, 4, 7, 10, 13};
  const Vector whole = MeanOf(gradients_, 0, 13);
  double variance = 0;
  for (size_t k = 0; k < 4; ++k) {
    Vector off = MeanOf(gradients_, cuts[k], cuts[k + 1]);
    for (size_t i = 0; i < off.size(); ++i) off[i] -= whole[i];
    variance += static_cast<double>(cuts[k + 1] - cuts[k]) * SquareOf(off) / 3;
  }
  const double square = SquareOf(whole) - variance / 13;
  for (const auto& [mesh, zero] : std::vector<std::pair<Mesh, int>>{{{1, 1, 1}, 0},
                                                                    {{2, 1, 1}, 0},
                                                                    {{1, 2, 1}, 0},
                                                                    {{1, 1, 2}, 0},
                                                                    {{2, 1, 1}, 1},
                                                                    {{2, 1, 1}, 2},
                                                                    {{2, 1, 1}, 3},
                                                                    {{2, 2, 2}, 0},
                                                                    {{4, 1, 1}, 1}}) {
    SCOPED_TRACE(absl::StrCat(mesh.ToString(), ", zero=", zero));
    const Outcome outcome = Trained(PlanOf(mesh, 4, zero), 1, 1);
    ASSERT_EQ(outcome.noise.size(), 1u);
    ASSERT_TRUE(outcome.noise[0].has_value());
    EXPECT_NEAR(outcome.noise[0]->variance, variance, 1e-5 * variance);
    EXPECT_NEAR(outcome.noise[0]->square, square, 1e-5 * SquareOf(whole));
  }
}

// Of an epoch of shuffled batches the expected values are known (samples are drawn without being
// put back): those of S and of |G|² - S / N, where S has the divisor N - 1.
TEST_P(NoiseNodesTest, TheAverageComesToTheCovarianceOfTheSamples) {
  MakeSamples(1024);
  const Vector mean = MeanOf(gradients_, 0, samples_);
  double variance = 0;
  for (const Vector& gradient : gradients_) {
    Vector off = gradient;
    for (size_t i = 0; i < off.size(); ++i) off[i] -= mean[i];
    variance += SquareOf(off) / static_cast<double>(samples_ - 1);
  }
  const double square = SquareOf(mean) - variance / static_cast<double>(samples_);
  data_spec_.batch = 64;
  data_spec_.shuffle = true;
  const Outcome outcome = Trained(PlanOf({2, 1, 1}, 8), 320, 1);
  NoiseMeasurement average;
  ASSERT_EQ(outcome.noise.size(), 320u);
  for (const auto& noise : outcome.noise) {
    ASSERT_TRUE(noise.has_value());
    average.variance += noise->variance / 320;
    average.square += noise->square / 320;
  }
  EXPECT_NEAR(average.variance, variance, 0.03 * variance);
  EXPECT_NEAR(average.square, square, 0.1 * square);
}

TEST_P(NoiseNodesTest, MeasuringChangesNoBitOfTheTraining) {
  MakeSamples(30);
  data_spec_.batch = 8;  // the last one has 6
  data_spec_.shuffle = true;
  training_.optimizer.kind = "adam";
  training_.optimizer.learning_rate = 0.01;
  for (const double clip_norm : {0.0, 0.1}) {
    training_.clip_norm = clip_norm;
    for (const auto& [mesh, zero] : std::vector<std::pair<Mesh, int>>{{{1, 1, 1}, 0},
                                                                      {{2, 1, 1}, 0},
                                                                      {{1, 2, 1}, 0},
                                                                      {{1, 1, 2}, 0},
                                                                      {{2, 2, 1}, 0},
                                                                      {{2, 1, 1}, 2},
                                                                      {{3, 1, 1}, 0},
                                                                      {{3, 1, 1}, 1},
                                                                      {{4, 1, 1}, 0}}) {
      SCOPED_TRACE(absl::StrCat(mesh.ToString(), ", zero=", zero, ", clip ", clip_norm));
      training_.measure_noise = false;
      const Outcome plain = Trained(PlanOf(mesh, 4, zero), 10, 0);
      training_.measure_noise = true;
      for (const int64_t every : {1, 3}) {
        const Outcome measured = Trained(PlanOf(mesh, 4, zero), 10, every);
        EXPECT_EQ(measured.losses, plain.losses) << every;
        for (const auto& [name, value] : plain.parameters) {
          EXPECT_TRUE(BitwiseEqual(measured.parameters.at(name), value)) << name << ", " << every;
        }
      }
    }
  }
}

TEST_P(NoiseNodesTest, OnlyEveryNthStepMeasures) {
  MakeSamples(22);
  data_spec_.batch = 8;
  const Outcome outcome = Trained(PlanOf({1, 1, 1}, 2), 7, 3);
  EXPECT_THAT(outcome.programs, ::testing::ElementsAre("train/8", "train/8", "noise/6", "train/8",
                                                       "train/8", "noise/6", "train/8"));
  for (int step = 0; step < 7; ++step) {
    EXPECT_EQ(outcome.noise[step].has_value(), step % 3 == 2) << step;
  }
}

// Each step is a range of its own, and a message to the workers has so many at most.
TEST_P(NoiseNodesTest, LongRunsThatMeasureAreHandedOutInParts) {
  MakeSamples(2);
  data_spec_.batch = 2;
  Stretches stretches;
  hook_ = &stretches;
  const Outcome outcome = Trained(PlanOf({1, 1, 1}, 2), 2100, 1);
  EXPECT_EQ(outcome.noise.size(), 2100u);
  EXPECT_TRUE(stretches.asked().contains(2000));
}

// One micro-batch has samples: there is nothing to compare it with.
TEST_P(NoiseNodesTest, AShortBatchWithOneMicroBatchIsNoMeasurement) {
  MakeSamples(9);
  data_spec_.batch = 8;
  const Outcome outcome = Trained(PlanOf({1, 1, 1}, 2), 2, 1);
  ASSERT_EQ(outcome.noise.size(), 2u);
  EXPECT_TRUE(outcome.noise[0].has_value());
  EXPECT_FALSE(outcome.noise[1].has_value());
}

// Labels that are ignored weigh nothing; the micro-batches of the others are 4 and 2 samples.
TEST_P(NoiseNodesTest, IgnoredLabelsDoNotCount) {
  MakeSamples(12);
  data_spec_.batch = 12;
  data_spec_.files.pop_back();
  Write("labels", Tensor::Of<int64_t>({12}, {-1, -1, -1, -1, 0, 1, 2, 3, 0, -1, -1, 2}));
  training_.loss = {.kind = "softmax_cross_entropy", .ignore_index = -1};
  const Outcome all = Trained(PlanOf({1, 1, 1}, 3), 1, 1);
  ASSERT_TRUE(all.noise[0].has_value());
  // The same without the micro-batch whose labels are all ignored.
  const Tensor x = testing::RandomTensor({12, kInputs}, 3);
  std::vector<float> rest(x.data<float>().begin() + 4 * kInputs, x.data<float>().end());
  data_spec_.files.clear();
  data_spec_.batch = 8;
  Write("x", Tensor::Of<float>({8, kInputs}, rest));
  Write("labels", Tensor::Of<int64_t>({8}, {0, 1, 2, 3, 0, -1, -1, 2}));
  const Outcome counted = Trained(PlanOf({1, 1, 1}, 2), 1, 1);
  ASSERT_TRUE(counted.noise[0].has_value());
  EXPECT_NEAR(all.noise[0]->square, counted.noise[0]->square,
              1e-5 * std::abs(counted.noise[0]->square));
  // Per sample: there are 12 in the one and 8 in the other, and as much weight.
  EXPECT_NEAR(all.noise[0]->variance, 1.5 * counted.noise[0]->variance,
              1e-5 * std::abs(counted.noise[0]->variance));
}

TEST_P(NoiseNodesTest, PlansThatCannotMeasureAreRefusedWithWhatToDo) {
  MakeSamples(12);
  data_spec_.batch = 12;
  EXPECT_THAT(std::string(TryTrain(PlanOf({1, 1, 1}, 1), 1, 1).status().message()),
              HasSubstr("this plan has 1; give --micro-batches 2 or more"));
  training_.optimizer.kind = "adam";
  EXPECT_THAT(std::string(TryTrain(PlanOf({3, 1, 1}, 3, 2), 1, 1).status().message()),
              HasSubstr("in another order over 3 replicas"));
  Plan strict = PlanOf({3, 1, 1}, 3, 2);
  strict.strict = true;
  EXPECT_TRUE(TryTrain(strict, 1, 1).ok());
  // Rounding does not matter to who throws the weights away.
  measures_only_ = true;
  const Outcome exact = Trained(strict, 1, 1);
  const Outcome other = Trained(PlanOf({3, 1, 1}, 3, 2), 1, 1);
  ASSERT_TRUE(exact.noise.at(0).has_value() && other.noise.at(0).has_value());
  EXPECT_NEAR(other.noise[0]->variance, exact.noise[0]->variance, 1e-5 * exact.noise[0]->variance);
  // No advice to leave out a flag that --batch auto does not have.
  EXPECT_THAT(std::string(TryTrain(PlanOf({1, 1, 1}, 1), 1, 1).status().message()),
              ::testing::Not(HasSubstr("--noise-scale")));
}

}  // namespace
}  // namespace weft
