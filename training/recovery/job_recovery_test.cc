// Jobs on workers of this process, which are lost at any moment: the others go on, and come to the
// bits of a run that has lost nobody.
#include "training/recovery/job_recovery.h"

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSamples = 40;
constexpr int kFeatures = 6;
constexpr int kClasses = 3;
constexpr int64_t kSteps = 60;
constexpr char kVersion[] = "test";

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// scores [N,3] = tanh(x [N,6] times v [6,6]) times w [6,3].
Graph Model() {
  Graph graph;
  const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), kFeatures}));
  const ValueId v = graph.AddVariable("v", FloatType({kFeatures, kFeatures}),
                                      testing::RandomTensor({kFeatures, kFeatures}, 1), true);
  const ValueId w = graph.AddVariable("w", FloatType({kFeatures, kClasses}),
                                      testing::RandomTensor({kFeatures, kClasses}, 2), true);
  GraphBuilder builder(graph);
  const ValueId hidden = builder.Op("Tanh", {builder.Op("MatMul", {x, v})});
  const ValueId scores = builder.Op("MatMul", {hidden, w});
  builder.Name(scores, "scores");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(scores);
  return graph;
}

// A worker of this process that can be lost: its step under way ends as if the process had, and no
// call reaches it after that.
class MortalClient final : public WorkerClient {
 public:
  explicit MortalClient(WorkerClient& worker) : worker_(worker) {}
  void Die() {
    dead_.store(true);
    worker_.Abort(absl::UnavailableError("the process was killed"));
  }
  bool is_dead() const { return dead_.load(); }
  // It dies as soon as it has run its steps, or when a variable is read from it.
  void DieAfterSteps() { dies_after_steps_ = true; }
  void DieWhenRead() { dies_when_read_ = true; }

  std::string name() const override { return worker_.name(); }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override {
    if (is_dead()) return Lost();
    return worker_.Join(membership);
  }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                               const Partition& partition,
                                               const std::string& data) override {
    if (is_dead()) return Lost();
    return worker_.AddProgram(program, partition, data);
  }
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override {
    return is_dead() ? Lost() : worker_.WriteVariable(name, local);
  }
  absl::StatusOr<Tensor> ReadVariable(const std::string& name) override {
    if (dies_when_read_) Die();
    if (is_dead()) return Lost();
    return worker_.ReadVariable(name);
  }
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report) override {
    if (is_dead()) return Lost();
    const auto told = [&](const StepReport& done) {
      if (!is_dead()) report(done);
    };
    const absl::Status status =
        report == nullptr ? worker_.RunSteps(ranges, nullptr) : worker_.RunSteps(ranges, told);
    if (is_dead()) return Lost();
    if (dies_after_steps_) Die();
    return status;
  }
  absl::StatusOr<ControlReply> Answer(const ControlRequest& request) override {
    if (is_dead()) return Lost();
    return worker_.Answer(request);
  }
  void Abort(const absl::Status& reason) override {
    if (!is_dead()) worker_.Abort(reason);
  }

 private:
  absl::Status Lost() const {
    return absl::UnavailableError(absl::StrCat(worker_.name(), " was lost"));
  }

  WorkerClient& worker_;
  std::atomic<bool> dead_{false};
  bool dies_after_steps_ = false;
  bool dies_when_read_ = false;
};

// The run of one job, with what is lost in it.
class JobRecoveryTest : public ::testing::Test {
 protected:
  JobRecoveryTest() {
    Write("x", testing::RandomTensor({kSamples, kFeatures}, 3));
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSamples; ++i) labels.push_back((i * 7 + i / 5) % kClasses);
    Write("labels", Tensor::Of<int64_t>({kSamples}, labels));
    data_spec_.batch = 8;
    data_spec_.shuffle = true;
    training_.optimizer.kind = "adam";
    training_.optimizer.learning_rate = 0.01;
    plan_.strict = true;
    plan_.commits = true;
    plan_.micro_batches = 8;
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  // Starts the job on `workers`; `commits` as the loop would have it.
  void Start(int workers, Mesh mesh) {
    spec_.cluster = ClusterSpec::Local(workers, 1);
    spec_.plan = plan_;
    spec_.plan.mesh = mesh;
    auto data = DataSet::Open(files_, data_spec_);
    ASSERT_TRUE(data.ok()) << data.status();
    auto job = PrepareTraining(model_, training_, spec_, *data);
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *std::move(job);
    spec_.commits = JobRecovery::WhyNot(job_, spec_).empty();
    mortal_.clear();
    cluster_ = std::make_unique<InProcessCluster>(workers, NewDataSetFactory(files_), kVersion);
    std::vector<WorkerClient*> clients;
    for (WorkerClient* worker : cluster_->clients()) {
      mortal_.push_back(std::make_unique<MortalClient>(*worker));
      clients.push_back(mortal_.back().get());
    }
    coordinator_ = std::make_unique<Coordinator>(clients);
    const absl::Status started = StartJob(*coordinator_, job_, spec_, kVersion, {});
    ASSERT_TRUE(started.ok()) << started;
  }

  // `at`: called with the number of each step whose progress is told.
  absl::StatusOr<TrainResult> Run(const std::function<void(int64_t)>& at = nullptr) {
    losses_.clear();
    lines_.clear();
    JobRecoveryOptions options;
    options.repartition = [this](const Plan& plan) {
      return PartitionTraining(job_, model_, training_, plan, kTrainingSteps);
    };
    options.say = [this](const std::string& line) { lines_.push_back(line); };
    options.on_lost = [this](const std::vector<int>& ranks) { out_ = ranks; };
    JobRecovery recovery(job_, options);
    return Train(*coordinator_, job_, {.steps = kSteps, .losses = &recovery},
                 [&](const TrainProgress& progress) {
                   EXPECT_EQ(progress.step, static_cast<int64_t>(losses_.size()));
                   losses_.push_back(progress.loss);
                   if (at != nullptr) at(progress.step);
                 });
  }

  // What nobody has disturbed comes to.
  void RunUndisturbed() {
    Start(1, {});
    const auto result = Run();
    ASSERT_TRUE(result.ok()) << result.status();
    expected_ = result->parameters;
    expected_losses_ = losses_;
    ASSERT_THAT(expected_losses_, SizeIs(kSteps));
  }

  void ExpectUndisturbed(const absl::StatusOr<TrainResult>& result) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->steps, kSteps);
    EXPECT_EQ(losses_, expected_losses_);
    for (const auto& [name, value] : expected_) {
      EXPECT_TRUE(BitwiseEqual(result->parameters.at(name), value)) << name;
    }
  }

  testing::FakeFileSystem files_;
  const Graph model_ = Model();
  DataSpec data_spec_;
  TrainingSpec training_;
  Plan plan_;
  JobSpec spec_;
  PreparedJob job_;
  std::unique_ptr<InProcessCluster> cluster_;
  std::vector<std::unique_ptr<MortalClient>> mortal_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<double> losses_;
  std::vector<std::string> lines_;
  std::vector<int> out_;
  std::map<std::string, Tensor> expected_;
  std::vector<double> expected_losses_;
};

// At 40 moments, each of the four in turn.
TEST_F(JobRecoveryTest, ReplicasThatAreLeftComeToTheSameBits) {
  RunUndisturbed();
  std::mt19937 random(5);
  int cut = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    Start(4, {.data = 4});
    MortalClient& victim = *mortal_[static_cast<size_t>(round % 4)];
    const auto delay = absl::Microseconds(random() % 30000);
    std::thread killer([&] {
      absl::SleepFor(delay);
      victim.Die();
    });
    const auto result = Run();
    killer.join();
    // It may have died after the last step: then values were read, or could not be.
    ExpectUndisturbed(result);
    if (!lines_.empty()) ++cut;
  }
  EXPECT_GT(cut, 10);
}

// Its peers may still wait for what it has sent, or all of its steps are done and told.
TEST_F(JobRecoveryTest, WhoIsLostAfterTheLastStepCostsNone) {
  RunUndisturbed();
  for (int victim = 0; victim < 4; ++victim) {
    SCOPED_TRACE(victim);
    Start(4, {.data = 4});
    mortal_[static_cast<size_t>(victim)]->DieAfterSteps();
    ExpectUndisturbed(Run());
  }
  Start(4, {.data = 4});
  mortal_[0]->DieWhenRead();
  ExpectUndisturbed(Run());
  EXPECT_THAT(lines_, SizeIs(1));
}

TEST_F(JobRecoveryTest, AReplicaOfStagesAndShardsIsLostWhole) {
  RunUndisturbed();
  for (int victim = 0; victim < 4; ++victim) {
    SCOPED_TRACE(victim);
    Start(4, {.data = 2, .tensor = 1, .pipeline = 2});
    const auto result = Run([&](int64_t step) {
      if (step == 20) mortal_[static_cast<size_t>(victim)]->Die();
    });
    ExpectUndisturbed(result);
    ASSERT_THAT(lines_, SizeIs(1));
    EXPECT_THAT(lines_[0], HasSubstr("2 of 4 workers go on as dp=1 x tp=1 x pp=2"));
    EXPECT_THAT(lines_[0], HasSubstr(absl::StrCat("worker:", victim))) << "whoever has told it";
    EXPECT_THAT(out_, SizeIs(2));  // its other stage, too
    EXPECT_EQ(coordinator_->size(), 2);
  }
}

TEST_F(JobRecoveryTest, OneAfterTheOtherUntilOneIsLeft) {
  RunUndisturbed();
  Start(4, {.data = 4});
  const auto result = Run([&](int64_t step) {
    if (step == 10) mortal_[0]->Die();  // it reports
    if (step == 25) mortal_[3]->Die();
    if (step == 40) mortal_[1]->Die();
  });
  ExpectUndisturbed(result);
  EXPECT_THAT(lines_, SizeIs(3));
  EXPECT_EQ(coordinator_->size(), 1);
}

TEST_F(JobRecoveryTest, StateThatIsLostEndsTheRun) {
  Start(2, {.data = 1, .tensor = 1, .pipeline = 2});
  EXPECT_THAT(JobRecovery::WhyNot(job_, spec_), HasSubstr("no worker has what another has"));
  const auto result = Run([&](int64_t step) {
    if (step == 20) mortal_[1]->Die();
  });
  EXPECT_TRUE(absl::IsUnavailable(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("cannot go on without it"));
  EXPECT_THAT(lines_, IsEmpty());
  plan_.zero = 1;
  Start(2, {.data = 2});
  EXPECT_THAT(JobRecovery::WhyNot(job_, spec_), HasSubstr("zero=1"));
}

}  // namespace
}  // namespace weft
