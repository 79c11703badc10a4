// Jobs whose workers lose each other, though all of them answer the coordinator: one of the two
// goes, and the others come to the bits of a run that nobody has disturbed.
#include "training/recovery/broken_pairs.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/in_process_cluster.h"
#include "distributed/testing/fault_injecting_transport.h"
#include "distributed/worker_source.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/job/trainer.h"
#include "training/recovery/job_recovery.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSamples = 24;
constexpr int kFeatures = 4;
constexpr int64_t kSteps = 20;
constexpr char kVersion[] = "test";

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// scores [N,3] = tanh(x [N,4] times w [4,3]).
Graph Model() {
  Graph graph;
  const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), kFeatures}));
  const ValueId w = graph.AddVariable("w", FloatType({kFeatures, 3}),
                                      testing::RandomTensor({kFeatures, 3}, 2), true);
  GraphBuilder builder(graph);
  const ValueId scores = builder.Op("Tanh", {builder.Op("MatMul", {x, w})});
  builder.Name(scores, "scores");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(scores);
  return graph;
}

// Remembers who was wanted, and has nobody.
class NobodyComes final : public WorkerSource {
 public:
  void Want(int place) override { wanted_.push_back(place); }
  bool is_expected() const override { return false; }
  std::vector<Arrival> Take(absl::Time) override { return {}; }
  const std::vector<int>& wanted() const { return wanted_; }

 private:
  std::vector<int> wanted_;
};

class BrokenPairsTest : public ::testing::Test {
 protected:
  BrokenPairsTest() {
    Write("x", testing::RandomTensor({kSamples, kFeatures}, 3));
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSamples; ++i) labels.push_back(i % 3);
    Write("labels", Tensor::Of<int64_t>({kSamples}, labels));
    data_spec_.batch = 12;
    training_.optimizer.kind = "adam";
    training_.optimizer.learning_rate = 0.01;
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  // A job of so many replicas whose workers have these faults in their messages, each until it has
  // struck: in the how manieth job (they join a new one after a loss), from 0.
  struct Break {
    int worker = 0;
    size_t job = 0;
    std::string faults;
  };
  absl::StatusOr<TrainResult> Run(int replicas, const std::vector<Break>& breaks) {
    JobSpec spec;
    spec.cluster = ClusterSpec::Local(replicas, 1);
    spec.plan.mesh.data = replicas;
    spec.plan.strict = true;
    spec.plan.commits = true;
    spec.plan.micro_batches = 12;
    WEFT_ASSIGN_OR_RETURN(const auto data, DataSet::Open(files_, data_spec_));
    WEFT_ASSIGN_OR_RETURN(PreparedJob job, PrepareTraining(model_, training_, spec, data));
    spec.commits = JobRecovery::WhyNot(job, spec).empty();
    InProcessCluster cluster(replicas, NewDataSetFactory(files_), kVersion);
    std::vector<std::vector<uint64_t>> jobs(static_cast<size_t>(replicas));  // by worker
    cluster.set_transport_hook([&](int worker, const JobMembership& membership,
                                   std::unique_ptr<Transport> own) -> std::unique_ptr<Transport> {
      std::vector<uint64_t>& seen = jobs[static_cast<size_t>(worker)];
      seen.push_back(membership.job_id);
      for (const Break& one : breaks) {
        if (one.worker != worker || one.job + 1 != seen.size()) continue;
        return std::make_unique<testing::FaultInjectingTransport>(
            std::move(own), testing::ParseTransportFaults(one.faults).value());
      }
      return own;
    });
    clients_ = cluster.clients();
    Coordinator coordinator(clients_);
    WEFT_RETURN_IF_ERROR(StartJob(coordinator, job, spec, kVersion, {}));
    JobRecoveryOptions options;
    options.repartition = [&](const Plan& plan) {
      return PartitionTraining(job, model_, training_, plan, kTrainingSteps);
    };
    lines_.clear();
    lost_.clear();
    options.say = [this](const std::string& line) { lines_.push_back(line); };
    options.on_lost = [this](const std::vector<WorkerClient*>& workers) {
      lost_.insert(lost_.end(), workers.begin(), workers.end());
    };
    options.source = &source_;
    JobRecovery recovery(job, options);
    TrainOptions train;
    train.steps = kSteps;
    train.losses = &recovery;
    auto result = Train(coordinator, job, train, [](const TrainProgress&) {});
    left_ = coordinator.clients();
    return result;
  }

  void ExpectUndisturbed(const absl::StatusOr<TrainResult>& result) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->steps, kSteps);
    for (const auto& [name, value] : expected_) {
      EXPECT_TRUE(BitwiseEqual(result->parameters.at(name), value)) << name;
    }
  }
  void RunUndisturbed() {
    const auto result = Run(1, {});
    ASSERT_TRUE(result.ok()) << result.status();
    expected_ = result->parameters;
    ASSERT_THAT(expected_, SizeIs(1));
  }

  testing::FakeFileSystem files_;
  const Graph model_ = Model();
  DataSpec data_spec_;
  TrainingSpec training_;
  NobodyComes source_;
  std::vector<WorkerClient*> clients_, left_, lost_;  // pointers to compare
  std::vector<std::string> lines_;
  std::map<std::string, Tensor> expected_;
};

int SamePlace(int rank) { return rank; }

TEST(BrokenPairsRuleTest, OfTwoAlikeTheHigherRankGoes) {
  EXPECT_THAT(BrokenPairs().Choose({}, SamePlace), IsEmpty());
  EXPECT_THAT(BrokenPairs().Choose({{0, 1}}, SamePlace), ElementsAre(1));
  EXPECT_THAT(BrokenPairs().Choose({{1, 0}}, SamePlace), ElementsAre(1));
  EXPECT_THAT(BrokenPairs().Choose({{0, 1}, {1, 0}}, SamePlace), ElementsAre(1));
  // Two pairs with nobody in common.
  EXPECT_THAT(BrokenPairs().Choose({{3, 0}, {1, 2}}, SamePlace), ElementsAre(2, 3));
}

TEST(BrokenPairsRuleTest, WhoIsInMorePairsGoesAloneAndAtAnyTime) {
  EXPECT_THAT(BrokenPairs().Choose({{0, 1}, {0, 2}, {3, 0}}, SamePlace), ElementsAre(0));
  EXPECT_THAT(BrokenPairs().Choose({{3, 0}, {0, 2}, {0, 1}}, SamePlace), ElementsAre(0));
  // One after the other; rank 3 has become rank 2 when 2 had gone.
  BrokenPairs pairs;
  EXPECT_THAT(pairs.Choose({{0, 2}}, SamePlace), ElementsAre(2));
  EXPECT_THAT(pairs.Choose({{2, 0}}, [](int rank) { return rank < 2 ? rank : rank + 1; }),
              ElementsAre(0));
}

// Whichever of the two notices it first.
TEST_F(BrokenPairsTest, TheHigherOfTwoGoesWhoeverTellsOfIt) {
  RunUndisturbed();
  for (const int who : {0, 1}) {
    SCOPED_TRACE(who);
    const auto result = Run(2, {{who, 0, "lose_peer@9"}});
    ExpectUndisturbed(result);
    EXPECT_THAT(lost_, ElementsAre(clients_[1]));
    EXPECT_THAT(left_, ElementsAre(clients_[0]));
    ASSERT_THAT(lines_, SizeIs(1));
    EXPECT_THAT(lines_[0], HasSubstr("worker:1"));
    EXPECT_THAT(lines_[0], HasSubstr("have lost each other, though both answer"));
    EXPECT_THAT(lines_[0], HasSubstr(absl::StrCat("rank ", who, " lost rank ", 1 - who)));
    EXPECT_THAT(lines_[0], HasSubstr("1 of 2 workers go on"));
  }
  // It would lose the same one again.
  EXPECT_THAT(source_.wanted(), IsEmpty());
}

TEST_F(BrokenPairsTest, AnyPairOfFourAtAnyMessage) {
  RunUndisturbed();
  for (int who = 0; who < 4; ++who) {
    for (const int message : {0, 5, 30}) {
      SCOPED_TRACE(absl::StrCat(who, " at ", message));
      ExpectUndisturbed(Run(4, {{who, 0, absl::StrCat("lose_peer@", message)}}));
      EXPECT_THAT(lost_, SizeIs(1));
      EXPECT_THAT(left_, SizeIs(3));
    }
  }
}

// Worker 0 loses one after the other: at the second time it is known that the fault is its own.
TEST_F(BrokenPairsTest, WhoIsInMorePairsGoesBeforeTheHigherRank) {
  RunUndisturbed();
  ExpectUndisturbed(Run(4, {{0, 0, "lose_peer@6"}, {0, 1, "lose_peer@6"}}));
  ASSERT_THAT(lost_, SizeIs(2));
  EXPECT_NE(lost_[0], clients_[0]);
  EXPECT_EQ(lost_[1], clients_[0]);
  EXPECT_THAT(left_, SizeIs(2));
  EXPECT_THAT(source_.wanted(), IsEmpty());
}

}  // namespace
}  // namespace weft
