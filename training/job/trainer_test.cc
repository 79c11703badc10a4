// Jobs on workers of this process: a softmax regression on ten samples, against the same steps
// written out in double.
#include "training/job/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
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

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 10;
constexpr int64_t kBatch = 4;  // the last one of an epoch has 2
constexpr int kFeatures = 4;
constexpr int kClasses = 3;
constexpr double kRate = 0.5;
constexpr char kVersion[] = "test";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// scores [N,3] = tanh(x [N,4]) times w [4,3] plus b [3].
Graph Model() {
  Graph graph;
  const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), kFeatures}));
  const ValueId w = graph.AddVariable("w", FloatType({kFeatures, kClasses}),
                                      testing::RandomTensor({kFeatures, kClasses}, 1), true);
  const ValueId b =
      graph.AddVariable("b", FloatType({kClasses}), testing::RandomTensor({kClasses}, 2), true);
  GraphBuilder builder(graph);
  const ValueId hidden = builder.Op("Tanh", {x});
  const ValueId scores = builder.Op("Add", {builder.Op("MatMul", {hidden, w}), b});
  builder.Name(scores, "scores");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(scores);
  return graph;
}

// The same model and plain gradient descent, in double.
class ByHand {
 public:
  ByHand(const Tensor& x, const Tensor& labels)
      : x_(*ToDoubles(x)),
        labels_(*ToInt64s(labels)),
        w_(*ToDoubles(InitialOf("w"))),
        b_(*ToDoubles(InitialOf("b"))) {
    for (double& value : x_) value = std::tanh(value);
  }

  // The mean loss of samples [first, last), before one step on them.
  double Step(int64_t first, int64_t last, double rate = kRate) {
    std::vector<double> dw(w_.size()), db(b_.size());
    double loss = 0;
    for (int64_t n = first; n < last; ++n) {
      const std::vector<double> p = Probabilities(n);
      loss -= std::log(p[labels_[n]]);
      for (int c = 0; c < kClasses; ++c) {
        const double delta = p[c] - (c == labels_[n] ? 1 : 0);
        db[c] += delta;
        for (int k = 0; k < kFeatures; ++k) dw[k * kClasses + c] += x_[n * kFeatures + k] * delta;
      }
    }
    const double count = static_cast<double>(last - first);
    for (size_t i = 0; i < w_.size(); ++i) w_[i] -= rate * dw[i] / count;
    for (size_t i = 0; i < b_.size(); ++i) b_[i] -= rate * db[i] / count;
    return loss / count;
  }

  std::vector<double> Probabilities(int64_t n) const { return Probabilities(n, w_, b_); }

  // The mean loss of all samples with these weights.
  double Loss(const std::vector<double>& w, const std::vector<double>& b) const {
    double loss = 0;
    for (int64_t n = 0; n < kSamples; ++n) {
      loss -= std::log(Probabilities(n, w, b)[labels_[n]]) / kSamples;
    }
    return loss;
  }

  std::vector<double> Probabilities(int64_t n, const std::vector<double>& w,
                                    const std::vector<double>& b) const {
    std::vector<double> p(kClasses);
    double sum = 0;
    for (int c = 0; c < kClasses; ++c) {
      p[c] = b[c];
      for (int k = 0; k < kFeatures; ++k) p[c] += x_[n * kFeatures + k] * w[k * kClasses + c];
      p[c] = std::exp(p[c]);
      sum += p[c];
    }
    for (double& value : p) value /= sum;
    return p;
  }

  const std::vector<double>& w() const { return w_; }
  const std::vector<double>& b() const { return b_; }

 private:
  static Tensor InitialOf(const std::string& name) { return Model().FindVariable(name)->initial; }
  std::vector<double> x_;
  std::vector<int64_t> labels_;
  std::vector<double> w_;
  std::vector<double> b_;
};

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    Write("x", testing::RandomTensor({kSamples, kFeatures}, 3));
    Write("labels", Tensor::Of<int64_t>({kSamples}, {0, 1, 2, 1, 1, 0, 2, 2, 0, 1}));
    data_spec_.batch = kBatch;
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    if (!tensors_.contains(input)) data_spec_.files.push_back({input, path, 0});
    tensors_[input] = tensor;
  }

  absl::StatusOr<PreparedJob> Prepare(int workers, const Plan& plan = {}) {
    spec_.cluster = ClusterSpec::Local(workers, 1);
    spec_.plan = plan;
    auto data = DataSet::Open(files_, data_spec_);
    if (!data.ok()) return data.status();
    TrainingSpec training;
    training.report_gradients = report_gradients_;
    training.average_decay = average_decay_;
    training.optimizer.kind = optimizer_;
    training.optimizer.learning_rate = usual_rate_;
    training.schedule = schedule_;
    training.precision = precision_;
    return PrepareTraining(Model(), training, spec_, *data);
  }

  void Start(int workers) {
    cluster_ = std::make_unique<InProcessCluster>(workers, NewDataSetFactory(files_), kVersion);
    coordinator_ = std::make_unique<Coordinator>(cluster_->clients());
  }

  // Trains `steps` steps and collects the losses.
  absl::StatusOr<TrainResult> TrainOn(int workers, int64_t steps, const Plan& plan = {}) {
    losses_.clear();
    samples_.clear();
    rates_.clear();
    absl::StatusOr<PreparedJob> job = Prepare(workers, plan);
    if (!job.ok()) return job.status();
    if (rate_.has_value()) job->learning_rate = *rate_;
    Start(workers);
    const absl::Status started = StartJob(*coordinator_, *job, spec_, kVersion, {});
    if (!started.ok()) return started;
    return Train(*coordinator_, *job, {.steps = steps, .report_gradients = report_gradients_},
                 [this](const TrainProgress& progress) {
                   EXPECT_EQ(progress.step, static_cast<int64_t>(losses_.size()));
                   losses_.push_back(progress.loss);
                   samples_.push_back(progress.samples);
                   rates_.push_back(progress.learning_rate);
                 });
  }

  testing::FakeFileSystem files_;
  DataSpec data_spec_;
  std::map<std::string, Tensor> tensors_;
  JobSpec spec_;
  bool report_gradients_ = false;
  std::string optimizer_ = "sgd";
  double usual_rate_ = kRate;
  RateSchedule schedule_;
  std::optional<double> rate_;  // instead of the specification's, which has its bounds
  double average_decay_ = 0;
  Precision precision_ = Precision::kFloat32;
  std::unique_ptr<InProcessCluster> cluster_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<double> losses_;
  std::vector<int64_t> samples_;
  std::vector<double> rates_;
};

// Cut into four, the short batch of two has micro-batches without samples.
TEST_F(TrainerTest, TwoEpochsWithShortBatchesEqualTheStepsByHandOnAnyWorkers) {
  for (const int workers : {1, 2, 3}) {
    for (const int micro_batches : {1, 4}) {
      if (micro_batches < workers) continue;
      SCOPED_TRACE(absl::StrCat(workers, " workers, ", micro_batches, " micro-batches"));
      Plan plan;
      plan.micro_batches = micro_batches;
      const auto result = TrainOn(workers, 6, plan);
      ASSERT_TRUE(result.ok()) << result.status();
      ByHand expected(tensors_["x"], tensors_["labels"]);
      EXPECT_THAT(samples_, ElementsAre(4, 4, 2, 4, 4, 2));
      for (int step = 0; step < 6; ++step) {
        const int64_t first = step % 3 * kBatch;
        EXPECT_NEAR(losses_[step], expected.Step(first, first + samples_[step]), 1e-6) << step;
      }
      EXPECT_EQ(result->last_loss, losses_.back());
      const std::vector<double> w = *ToDoubles(result->parameters.at("w"));
      for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(w[i], expected.w()[i], 1e-6) << i;
      EXPECT_EQ(result->parameters.size(), 2u);
    }
  }
}

// The loop gets it from the specification, and tells it as the step has used it.
TEST_F(TrainerTest, StepsUseTheRateOfTheSpecificationAndItsSchedule) {
  schedule_.kind = "exponential";
  schedule_.gamma = 0.5;
  const auto result = TrainOn(2, 3);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(rates_, ElementsAre(kRate, kRate / 2, kRate / 4));
  ByHand expected(tensors_["x"], tensors_["labels"]);
  expected.Step(0, 4, kRate);
  expected.Step(4, 8, kRate / 2);
  expected.Step(8, 10, kRate / 4);
  const std::vector<double> w = *ToDoubles(result->parameters.at("w"));
  for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(w[i], expected.w()[i], 1e-6) << i;
}

TEST_F(TrainerTest, StrictGivesTheSameBitsOnAnyWorkers) {
  data_spec_.shuffle = true;
  Plan plan;
  plan.strict = true;
  plan.micro_batches = 4;
  const auto single = TrainOn(1, 6, plan);
  ASSERT_TRUE(single.ok()) << single.status();
  const std::vector<double> losses = losses_;
  for (const int workers : {2, 3, 4}) {
    const auto spread = TrainOn(workers, 6, plan);
    ASSERT_TRUE(spread.ok()) << spread.status();
    EXPECT_EQ(losses_, losses) << workers;
    for (const char* name : {"w", "b"}) {
      EXPECT_TRUE(BitwiseEqual(spread->parameters.at(name), single->parameters.at(name)))
          << name << " on " << workers;
    }
  }
}

// With the usual numbers of each, on the whole data, which is a convex loss: any sound optimizer
// lowers it.
TEST_F(TrainerTest, EveryOptimizerLowersTheLossAndHasItsBitsOnTwoWorkers) {
  data_spec_.batch = kSamples;
  Plan plan;
  plan.strict = true;
  plan.micro_batches = 2;
  ASSERT_THAT(OptimizerKinds(), ::testing::Contains("adam"));
  for (const std::string& kind : OptimizerKinds()) {
    SCOPED_TRACE(kind);
    optimizer_ = kind;
    usual_rate_ = UsualLearningRate(kind);
    plan.zero = 0;
    const auto single = TrainOn(1, 8, plan);
    ASSERT_TRUE(single.ok()) << single.status();
    EXPECT_LT(losses_.back(), losses_.front());
    const std::vector<double> losses = losses_;
    plan.zero = 1;
    const auto spread = TrainOn(2, 8, plan);
    ASSERT_TRUE(spread.ok()) << spread.status();
    EXPECT_EQ(losses_, losses);
    for (const char* name : {"w", "b"}) {
      EXPECT_TRUE(BitwiseEqual(spread->parameters.at(name), single->parameters.at(name))) << name;
    }
  }
}

// Parts of which a rank finishes several subtrees.
TEST_F(TrainerTest, StrictGivesTheSameBitsWithAnyShares) {
  data_spec_.batch = 8;
  Plan plan;
  plan.strict = true;
  plan.micro_batches = 8;
  const auto single = TrainOn(1, 4, plan);
  ASSERT_TRUE(single.ok()) << single.status();
  const std::vector<double> losses = losses_;
  for (const std::vector<int>& shares :
       std::vector<std::vector<int>>{{6, 2}, {1, 7}, {5, 3}, {2, 4, 2}, {4, 3, 1}, {1, 3, 3, 1}}) {
    plan.shares = shares;
    const auto spread = TrainOn(static_cast<int>(shares.size()), 4, plan);
    ASSERT_TRUE(spread.ok()) << spread.status();
    const std::string text = ::testing::PrintToString(shares);
    EXPECT_EQ(losses_, losses) << text;
    for (const char* name : {"w", "b"}) {
      EXPECT_TRUE(BitwiseEqual(spread->parameters.at(name), single->parameters.at(name)))
          << name << ", shares " << text;
    }
  }
}

TEST_F(TrainerTest, TheFirstStepsGradientsAreReportedAndItIsAStepLikeAnyOther) {
  const auto plain = TrainOn(2, 3);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE(plain->gradients.empty());
  report_gradients_ = true;
  const auto reporting = TrainOn(2, 3);
  ASSERT_TRUE(reporting.ok()) << reporting.status();
  ASSERT_TRUE(reporting->gradients.contains("w"));
  ByHand expected(tensors_["x"], tensors_["labels"]);
  const std::vector<double> before = expected.w();
  expected.Step(0, kBatch);
  const std::vector<double> gradient = *ToDoubles(reporting->gradients.at("w"));
  for (size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_NEAR(gradient[i], (before[i] - expected.w()[i]) / kRate, 1e-6) << i;
  }
  EXPECT_TRUE(BitwiseEqual(reporting->parameters.at("w"), plain->parameters.at("w")));
}

// average <- decay average + (1 - decay) value after each step, from the initial values on.
TEST_F(TrainerTest, AveragesFollowTheParametersAndCanBeMeasured) {
  average_decay_ = 0.75;
  const auto data = DataSet::Open(files_, data_spec_);
  ASSERT_TRUE(data.ok()) << data.status();
  ByHand hand(tensors_["x"], tensors_["labels"]);
  std::vector<double> w = hand.w(), b = hand.b();
  const auto follow = [this](std::vector<double>& average, const std::vector<double>& value) {
    for (size_t i = 0; i < value.size(); ++i) {
      average[i] = average_decay_ * average[i] + (1 - average_decay_) * value[i];
    }
  };
  for (int step = 0; step < 5; ++step) {
    const int64_t first = step % 3 * kBatch;
    hand.Step(first, first + (*data)->batch_of(step));
    follow(w, hand.w());
    follow(b, hand.b());
  }
  for (const auto& [workers, zero] :
       {std::pair(1, 0), std::pair(2, 0), std::pair(2, 1), std::pair(2, 2), std::pair(2, 3)}) {
    SCOPED_TRACE(absl::StrCat(workers, " workers, zero=", zero));
    Plan plan;
    plan.zero = zero;
    const auto job = Prepare(workers, plan);
    ASSERT_TRUE(job.ok()) << job.status();
    const auto averages = PrepareEvaluationWithin(*job, Model(), {}, {"loss"}, spec_, *data, true);
    ASSERT_TRUE(averages.ok()) << averages.status();
    Start(workers);
    const absl::Status started = StartJob(*coordinator_, *job, spec_, kVersion, {}, &*averages);
    ASSERT_TRUE(started.ok()) << started;
    const auto result = Train(*coordinator_, *job, {.steps = 5}, [](const TrainProgress&) {});
    ASSERT_TRUE(result.ok()) << result.status();
    const std::vector<double> kept = *ToDoubles(result->averages.at("w"));
    for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(kept[i], w[i], 1e-6) << i;
    EXPECT_NEAR((*ToDoubles(result->parameters.at("w")))[0], hand.w()[0], 1e-6);
    const auto metrics = Evaluate(*coordinator_, *averages, [](const TrainProgress&) {});
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    EXPECT_NEAR(metrics->at("loss"), hand.Loss(w, b), 1e-6);
  }
}

TEST_F(TrainerTest, WithoutAveragesNoneAreReadOrMeasured) {
  const auto result = TrainOn(1, 1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->averages.empty());
  const auto job = Prepare(1);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(
      Message(
          PrepareEvaluationWithin(*job, Model(), {}, {"loss"}, spec_, job->data, true).status()),
      "the job keeps no averages of its parameters");
}

TEST_F(TrainerTest, ParametersThatAreSplitAreMeasuredToo) {
  Plan plan;
  plan.zero = 3;
  const auto job = Prepare(2, plan);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto within = PrepareEvaluationWithin(*job, Model(), {}, {"loss"}, spec_, job->data);
  ASSERT_TRUE(within.ok()) << within.status();
  Start(2);
  const absl::Status started = StartJob(*coordinator_, *job, spec_, kVersion, {}, &*within);
  ASSERT_TRUE(started.ok()) << started;
  ASSERT_TRUE(Train(*coordinator_, *job, {.steps = 1}, [](const TrainProgress&) {}).ok());
  ByHand hand(tensors_["x"], tensors_["labels"]);
  hand.Step(0, kBatch);
  const auto metrics = Evaluate(*coordinator_, *within, [](const TrainProgress&) {});
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_NEAR(metrics->at("loss"), hand.Loss(hand.w(), hand.b()), 1e-6);
}

TEST_F(TrainerTest, NanInTheDataNamesTheFirstNodeThatMadeOne) {
  Tensor x = *tensors_["x"].Clone();
  x.mutable_data<float>()[6 * kFeatures] = std::numeric_limits<float>::quiet_NaN();  // in step 1
  Write("x", x);
  for (const int workers : {1, 2}) {
    const auto result = TrainOn(workers, 6);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange) << result.status();
    EXPECT_THAT(Message(result.status()),
                AllOf(HasSubstr("loss is nan at step 1"), HasSubstr("node 'Tanh'")));
    EXPECT_EQ(losses_.size(), 1u);
  }
}

// The loss of the last step does not show what its update has made.
TEST_F(TrainerTest, AnUpdateThatIsNotFiniteIsNotKept) {
  rate_ = std::numeric_limits<double>::infinity();
  for (const int workers : {1, 2}) {
    const auto result = TrainOn(workers, 1);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange) << result.status();
    EXPECT_THAT(Message(result.status()), HasSubstr("after step 1: variable 'b' has become "));
    EXPECT_EQ(losses_.size(), 1u);
  }
}

// A finite loss, and a first update that is infinite or NaN.
TEST_F(TrainerTest, NoOptimizerKeepsAnUpdateThatIsNotFinite) {
  rate_ = std::numeric_limits<double>::infinity();
  for (const std::string& kind : OptimizerKinds()) {
    SCOPED_TRACE(kind);
    optimizer_ = kind;
    const auto result = TrainOn(1, 1);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange) << result.status();
    EXPECT_THAT(Message(result.status()), HasSubstr("has become "));
    EXPECT_EQ(losses_.size(), 1u);
  }
}

TEST_F(TrainerTest, NoPlanKeepsAnUpdateThatIsNotFinite) {
  rate_ = std::numeric_limits<double>::infinity();
  optimizer_ = "adam";
  for (const int zero : {0, 1, 2, 3}) {
    for (const Mesh& mesh : {Mesh{2, 1, 1}, Mesh{1, 2, 1}, Mesh{1, 1, 2}, Mesh{2, 1, 2}}) {
      if (zero > 0 && mesh.data == 1) continue;
      for (const bool strict : {false, true}) {
        if (strict && mesh.tensor > 1) continue;
        SCOPED_TRACE(absl::StrCat(mesh.ToString(), ", ZeRO ", zero, strict ? ", strict" : ""));
        Plan plan;
        plan.mesh = mesh;
        plan.zero = zero;
        plan.strict = strict;
        plan.micro_batches = 2;
        plan.stages = {{"Tanh", 0}, {"MatMul", 0}, {"Add", mesh.pipeline - 1}};
        if (mesh.tensor > 1) plan.tensor_shardings = {{"w", AxisSharding::Split(1)}};
        const auto result = TrainOn(mesh.size(), 1, plan);
        EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange) << result.status();
        EXPECT_THAT(Message(result.status()), HasSubstr("has become "));
      }
    }
  }
}

TEST_F(TrainerTest, NoPrecisionKeepsAnUpdateThatIsNotFinite) {
  rate_ = std::numeric_limits<double>::infinity();
  for (const Precision precision : {Precision::kBfloat16, Precision::kFloat16}) {
    SCOPED_TRACE(PrecisionName(precision));
    precision_ = precision;
    const auto result = TrainOn(1, 1);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange) << result.status();
    EXPECT_THAT(Message(result.status()), HasSubstr("has become "));
  }
}

// What periodic evaluations save as the best so far is read while the job goes on.
TEST_F(TrainerTest, WeightsThatAreNotFiniteCannotBeRead) {
  rate_ = std::numeric_limits<double>::infinity();
  average_decay_ = 0.5;
  const auto job = Prepare(1);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(TrainOn(1, 1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ReadTrained(*coordinator_, *job).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ReadAverages(*coordinator_, *job).status().code(), absl::StatusCode::kOutOfRange);
}

// The loss of the next step shows it: that step changes nothing, and the run ends.
TEST_F(TrainerTest, TheStepAfterAnUpdateThatIsNotFiniteEndsTheRun) {
  rate_ = std::numeric_limits<double>::infinity();
  const auto result = TrainOn(2, 1000);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange) << result.status();
  EXPECT_THAT(Message(result.status()), HasSubstr("at step 1"));
  EXPECT_EQ(losses_.size(), 1u);
}

TEST_F(TrainerTest, DataThatDoesNotFitIsRefusedBeforeAnyWorkerStarts) {
  Write("x", testing::RandomTensor({kSamples, 5}, 3));
  const auto job = Prepare(1);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(job.status()),
              AllOf(HasSubstr("input 'x'"), HasSubstr("[4]"), HasSubstr("file shape [10,5]")));
}

TEST_F(TrainerTest, AnInputWithoutDataIsNamed) {
  data_spec_.files.pop_back();
  const auto job = Prepare(1);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(job.status()),
              AllOf(HasSubstr("input 'labels'"), HasSubstr("--data labels=FILE")));
}

TEST_F(TrainerTest, AFileThatChangesBeforeTheWorkersReadItIsRefused) {
  const auto job = Prepare(2);
  ASSERT_TRUE(job.ok()) << job.status();
  Write("x", testing::RandomTensor({kSamples, kFeatures}, 99));
  Start(2);
  const absl::Status status = StartJob(*coordinator_, *job, spec_, kVersion, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("'/x.npy' differs from the one that the coordinator"));
}

TEST_F(TrainerTest, EvaluationCountsEverySampleOnce) {
  ByHand model(tensors_["x"], tensors_["labels"]);
  double loss = 0, right = 0;
  for (int64_t n = 0; n < kSamples; ++n) {
    const std::vector<double> p = model.Probabilities(n);
    const int64_t label = tensors_["labels"].data<int64_t>()[n];
    loss -= std::log(p[label]) / kSamples;
    right += *std::max_element(p.begin(), p.end()) == p[label] ? 1.0 : 0.0;
  }
  for (const int workers : {1, 2, 3}) {
    spec_.cluster = ClusterSpec::Local(workers, 1);
    const auto data = DataSet::Open(files_, data_spec_);
    ASSERT_TRUE(data.ok()) << data.status();
    const auto job = PrepareEvaluation(Model(), {}, {"accuracy", "loss"}, spec_, *data);
    ASSERT_TRUE(job.ok()) << job.status();
    Start(workers);
    const absl::Status started = StartJob(*coordinator_, *job, spec_, kVersion, {});
    ASSERT_TRUE(started.ok()) << started;
    int64_t seen = 0;
    const auto metrics = Evaluate(
        *coordinator_, *job, [&seen](const TrainProgress& progress) { seen += progress.samples; });
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    EXPECT_NEAR(metrics->at("loss"), loss, 1e-6) << workers;
    EXPECT_NEAR(metrics->at("accuracy"), right / kSamples, 1e-6) << workers;
    EXPECT_EQ(seen, kSamples);
  }
}

TEST_F(TrainerTest, StepRangesFollowTheBatchSizes) {
  const auto data = DataSet::Open(files_, data_spec_);
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<std::string> texts;
  for (const StepRange& range : StepRanges(**data, "train", 1, 7, {})) {
    texts.push_back(absl::StrCat(range.program, " ", range.first_step, "+", range.count));
  }
  EXPECT_THAT(texts, ElementsAre("train/4 1+1", "train/2 2+1", "train/4 3+2", "train/2 5+1",
                                 "train/4 6+1"));
}

// As PyTorch exports a transformer's packed projection: Slice up to a bound that is computed from
// constants.
TEST_F(TrainerTest, ShapesThatAreComputedFromConstantsAreKnown) {
  Write("x", testing::RandomTensor({kSamples, 2, 3}, 3));
  const auto data = DataSet::Open(files_, data_spec_);
  ASSERT_TRUE(data.ok()) << data.status();
  Graph graph;
  GraphBuilder builder(graph);
  const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), 2, 3}));
  const ValueId end = builder.Op("Mod", {builder.Ints({2}), builder.Ints({3})});
  const ValueId lead = builder.Op("Slice", {builder.Op("Shape", {x}), builder.Ints({0}), end});
  const ValueId shape = builder.Op("Concat", {lead, builder.Ints({3})}, {{"axis", int64_t{0}}});
  const ValueId y = builder.Op("Reshape", {x, shape});
  builder.Name(y, "y");
  graph.AddOutput(y);
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  ASSERT_TRUE(BindInputs(graph, **data).ok());
  EXPECT_EQ(graph.value(*graph.FindValue("y")).type.ToString(), "float32[N,2,3]");
}

// As exporters bake the batch that they traced into the constants of a Reshape.
TEST_F(TrainerTest, AModelOfAFixedBatchSaysHowItTrains) {
  Graph graph;
  const ValueId x = graph.AddInput("x", FloatType({1, kFeatures}));
  const ValueId w = graph.AddVariable("w", FloatType({kFeatures, kClasses}),
                                      testing::RandomTensor({kFeatures, kClasses}, 1), true);
  GraphBuilder builder(graph);
  const ValueId flat = builder.Op("Reshape", {x, builder.Ints({1, kFeatures})});
  const ValueId scores = builder.Op("MatMul", {flat, w});
  builder.Name(scores, "scores");
  graph.AddOutput(scores);
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  const auto data = DataSet::Open(files_, data_spec_);
  ASSERT_TRUE(data.ok()) << data.status();
  spec_.cluster = ClusterSpec::Local(1, 1);
  EXPECT_THAT(Message(PrepareTraining(graph, {}, spec_, *data).status()),
              AllOf(HasSubstr("cannot reshape [4,4]"),
                    HasSubstr("the model was exported for a batch of 1, and shapes in it say so: "
                              "add --micro-batches 4")));
  spec_.plan.micro_batches = 4;
  const auto job = PrepareTraining(graph, {}, spec_, *data);
  EXPECT_TRUE(job.ok()) << job.status();
}

TEST_F(TrainerTest, InputsGetTheSampleShapeOfTheData) {
  Write("x", testing::RandomTensor({kSamples, 2, 3}, 3));
  const auto data = DataSet::Open(files_, data_spec_);
  ASSERT_TRUE(data.ok()) << data.status();
  const auto bound = [&data](ValueType type) -> absl::StatusOr<std::string> {
    Graph graph;
    const ValueId x = graph.AddInput("x", std::move(type));
    const absl::Status status = BindInputs(graph, **data);
    if (!status.ok()) return status;
    return graph.value(x).type.ToString();
  };
  EXPECT_EQ(*bound({ValueKind::kTensor, DType::kFloat32, SymbolicShape()}), "float32[batch,2,3]");
  EXPECT_EQ(*bound(FloatType({Dim::Symbol("N"), Dim(), 3})), "float32[N,2,3]");
  EXPECT_EQ(*bound(FloatType({Dim(), 6})), "float32[batch,6]");
  EXPECT_THAT(Message(bound(FloatType({Dim(), Dim()})).status()),
              AllOf(HasSubstr("input 'x'"), HasSubstr("dimension 1 is unknown")));
  EXPECT_THAT(Message(bound(FloatType({})).status()), HasSubstr("no axis for samples"));
}

}  // namespace
}  // namespace weft
