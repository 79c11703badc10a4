// Steps of several lengths on workers of this process: a table of scores by token, against the same
// steps written out in double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/testing/device_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/testing/fake_file_system.h"
#include "training/job/trainer.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kTokens = 6;
constexpr double kRate = 0.5;
constexpr char kVersion[] = "test";
constexpr int64_t kIgnored = -100;

// Lengths 3, 1, 2, 5, 1, 4, 2: batches of 3 have the lengths 4, 8, 2.
const std::vector<std::vector<int64_t>>& Samples() {
  static const auto* const kSamples = new std::vector<std::vector<int64_t>>{
      {1, 2, 3, 4}, {5, 0}, {2, 2, 1}, {0, 1, 2, 3, 4, 5}, {3, 3}, {4, 1, 4, 1, 0}, {5, 2, 3}};
  return *kSamples;
}

std::string Csv() {
  std::string text = "tokens,next\n";
  for (const std::vector<int64_t>& sample : Samples()) {
    std::string tokens, next;
    for (size_t i = 0; i + 1 < sample.size(); ++i) {
      absl::StrAppend(&tokens, sample[i], " ");
      absl::StrAppend(&next, sample[i + 1], " ");
    }
    absl::StrAppend(&text, tokens, ",", next, "\n");
  }
  return text;
}

// scores [N,S,6]: of each token, a row of the table. The positions are counted from the shape, so
// that a graph of another length has other constants.
Graph Model(const Dim& length = Dim::Symbol("S")) {
  Graph graph;
  const ValueId ids = graph.AddInput(
      "ids", {ValueKind::kTensor, DType::kInt64, SymbolicShape({Dim::Symbol("N"), length})});
  const ValueId table = graph.AddVariable(
      "table", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape{kTokens, kTokens})},
      testing::RandomTensor({kTokens, kTokens}, 1), /*trainable=*/true);
  GraphBuilder builder(graph);
  const ValueId positions = builder.Op("Gather", {builder.Op("Shape", {ids}), builder.Ints({1})});
  const ValueId shape = builder.Op(
      "Concat", {builder.Ints({-1}), positions, builder.Ints({kTokens})}, {{"axis", int64_t{0}}});
  const ValueId scores = builder.Op("Reshape", {builder.Op("Gather", {table, ids}), shape});
  builder.Name(scores, "scores");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(scores);
  return graph;
}

// The same model and plain gradient descent, in double; without any padding.
class ByHand {
 public:
  ByHand() : table_(*ToDoubles(Model().FindVariable("table")->initial)) {}

  double Step(const std::vector<int64_t>& rows) {
    std::vector<double> gradient(table_.size());
    double loss = 0, count = 0;
    for (const int64_t row : rows) {
      const std::vector<int64_t>& sample = Samples()[row];
      for (size_t i = 0; i + 1 < sample.size(); ++i, ++count) {
        const double* const scores = &table_[sample[i] * kTokens];
        double sum = 0;
        for (int c = 0; c < kTokens; ++c) sum += std::exp(scores[c]);
        loss += std::log(sum) - scores[sample[i + 1]];
        for (int c = 0; c < kTokens; ++c) {
          gradient[sample[i] * kTokens + c] +=
              std::exp(scores[c]) / sum - (c == sample[i + 1] ? 1 : 0);
        }
      }
    }
    for (size_t i = 0; i < table_.size(); ++i) table_[i] -= kRate * gradient[i] / count;
    return loss / count;
  }

  const std::vector<double>& table() const { return table_; }

 private:
  std::vector<double> table_;
};

// On each device of tensor/testing/test_device.h.
class PaddedTrainingTest : public ::testing::TestWithParam<int> {
 protected:
  PaddedTrainingTest() {
    EXPECT_TRUE(files_.WriteFileAtomically("/d.csv", Csv()).ok());
    Add("ids", "tokens", 0);
    Add("labels", "next", kIgnored);
    data_spec_.batch = 3;
    training_.loss.kind = "sequence_cross_entropy";
    training_.loss.ignore_index = kIgnored;
  }

  void Add(const std::string& input, const std::string& part, double value) {
    DataSpec::File& file = data_spec_.files.emplace_back();
    file.input = input;
    file.path = "/d.csv";
    file.part = part;
    file.padding = {{2, 4, 8, 16}, value};
  }

  std::shared_ptr<const DataSet> Data() {
    auto data = DataSet::Open(files_, data_spec_);
    EXPECT_TRUE(data.ok()) << data.status();
    return *std::move(data);
  }

  // Trains, and collects what each step reported.
  absl::StatusOr<TrainResult> TrainOn(int workers, int64_t steps) {
    losses_.clear();
    lengths_.clear();
    JobSpec spec;
    spec.cluster = ClusterSpec::Local(workers, 1);
    training_.optimizer.learning_rate = kRate;
    auto job = PrepareTraining(Model(), training_, spec, Data());
    if (!job.ok()) return job.status();
    for (const JobProgram& program : job->programs) names_.insert(program.name);
    testing::DeviceCluster cluster(GetParam(), workers, NewDataSetFactory(files_), kVersion);
    Coordinator coordinator(cluster.clients());
    const absl::Status started = StartJob(coordinator, *job, spec, kVersion, {});
    if (!started.ok()) return started;
    return Train(coordinator, *job, {.steps = steps}, [this](const TrainProgress& progress) {
      losses_.push_back(progress.loss);
      lengths_.push_back(progress.length);
    });
  }

  testing::FakeFileSystem files_;
  DataSpec data_spec_;
  TrainingSpec training_;
  std::vector<double> losses_;
  std::vector<int64_t> lengths_;
  std::set<std::string> names_;  // of the programs
};

INSTANTIATE_TEST_SUITE_P(Devices, PaddedTrainingTest, testing::JobDevices(),
                         testing::JobDeviceName);

TEST_P(PaddedTrainingTest, StepsOfSeveralLengthsAreThoseWithoutPadding) {
  for (const int workers : {1, 2, 3}) {
    SCOPED_TRACE(workers);
    const auto result = TrainOn(workers, 6);
    ASSERT_TRUE(result.ok()) << result.status();
    ByHand expected;
    for (int step = 0; step < 6; ++step) {
      const int64_t first = step % 3 * 3;
      std::vector<int64_t> rows;
      for (int64_t row = first; row < std::min<int64_t>(first + 3, 7); ++row) rows.push_back(row);
      EXPECT_NEAR(losses_[step], expected.Step(rows), 1e-6) << step;
    }
    EXPECT_THAT(lengths_, ElementsAre(4, 8, 2, 4, 8, 2));
    const std::vector<double> table = *ToDoubles(result->parameters.at("table"));
    for (size_t i = 0; i < table.size(); ++i) {
      EXPECT_NEAR(table[i], expected.table()[i], 1e-6) << i;
    }
  }
  // Nothing is 16 long; a batch of three has no length of 2 only where there are no three such.
  EXPECT_THAT(names_, ElementsAre("train/1x2", "train/1x4", "train/1x8", "train/3x2", "train/3x4",
                                  "train/3x8"));
}

TEST_P(PaddedTrainingTest, ShuffledStepsAreTheSameOnAnyWorkers) {
  data_spec_.shuffle = true;
  data_spec_.group_lengths = true;
  data_spec_.prefetch = 2;
  const auto one = TrainOn(1, 9);
  ASSERT_TRUE(one.ok()) << one.status();
  const std::vector<double> losses = losses_;
  const std::vector<int64_t> lengths = lengths_;
  EXPECT_GT(std::set<int64_t>(lengths.begin(), lengths.end()).size(), 1u);
  ASSERT_TRUE(TrainOn(3, 9).ok());
  EXPECT_EQ(lengths_, lengths);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses_[i], losses[i], 1e-6) << i;
}

TEST_P(PaddedTrainingTest, EvaluationCountsNoPadding) {
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(2, 1);
  const auto job = PrepareEvaluation(Model(), training_.loss, {"loss"}, spec, Data());
  ASSERT_TRUE(job.ok()) << job.status();
  testing::DeviceCluster cluster(GetParam(), 2, NewDataSetFactory(files_), kVersion);
  Coordinator coordinator(cluster.clients());
  const absl::Status started = StartJob(coordinator, *job, spec, kVersion, {});
  ASSERT_TRUE(started.ok()) << started;
  const auto metrics = Evaluate(coordinator, *job, [](const TrainProgress&) {});
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_NEAR(metrics->at("loss"), ByHand().Step({0, 1, 2, 3, 4, 5, 6}), 1e-6);
}

TEST_P(PaddedTrainingTest, AModelOfOneLengthNamesIt) {
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(1, 1);
  const auto job = PrepareTraining(Model(5), training_, spec, Data());
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("input 'ids' has 5 elements"));
}

}  // namespace
}  // namespace weft
