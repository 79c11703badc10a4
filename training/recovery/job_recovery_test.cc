// Jobs on workers of this process, which are lost, leave and come at any moment: the others go on,
// and come to the bits of a run that nobody has disturbed.
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

using ::testing::Contains;
using ::testing::ElementsAre;
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
  // It dies as soon as it has run its steps, or when a variable is read from it, or written to it.
  void DieAfterSteps() { dies_after_steps_ = true; }
  void DieWhenRead() { dies_when_read_ = true; }
  void DieWhenWritten() { dies_when_written_ = true; }
  // It is of another version than the job.
  void RefuseToJoin() { refuses_ = true; }
  void Leave() { leaving_.store(true); }
  bool is_leaving() const override { return leaving_.load(); }

  std::string name() const override { return worker_.name(); }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override {
    if (is_dead()) return Lost();
    if (refuses_) return absl::PermissionDeniedError("handshake refused: another version");
    return worker_.Join(membership);
  }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                               const Partition& partition,
                                               const std::string& data) override {
    if (is_dead()) return Lost();
    return worker_.AddProgram(program, partition, data);
  }
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override {
    if (dies_when_written_) Die();
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
  bool dies_when_written_ = false;
  bool refuses_ = false;
  std::atomic<bool> leaving_{false};
};

// Workers that are in no job yet, each for the first place that wants one. They come `delay` looks
// after they were wanted.
class SpareWorkers final : public WorkerSource {
 public:
  void Add(WorkerClient& worker) { spares_.push_back(&worker); }
  void set_delay(int delay) { delay_ = delay; }
  void Want(int place) override {
    if (wanted_.contains(place) || wanted_.size() == spares_.size()) return;
    wanted_[place] = delay_;
  }
  bool is_expected() const override { return !wanted_.empty(); }
  std::vector<Arrival> Take(absl::Time) override {
    std::vector<Arrival> arrivals;
    for (auto one = wanted_.begin(); one != wanted_.end();) {
      if (one->second-- > 0) {
        ++one;
        continue;
      }
      arrivals.push_back({one->first, spares_.front(), ""});
      spares_.erase(spares_.begin());
      one = wanted_.erase(one);
    }
    return arrivals;
  }

 private:
  std::vector<WorkerClient*> spares_;
  std::map<int, int> wanted_;  // looks until it comes, by place
  int delay_ = 0;
};

// Workers that come for any place, `delay` looks after the run has begun.
class WillingWorkers final : public WorkerSource {
 public:
  void Add(WorkerClient& worker, bool may_add, int delay) {
    willing_.push_back({{kAnyPlace, &worker, "", "", may_add}, delay});
  }
  void Want(int) override {}
  bool is_expected() const override { return false; }
  std::vector<Arrival> Take(absl::Time) override {
    std::vector<Arrival> arrivals;
    std::erase_if(willing_, [&](Willing& one) {
      if (one.delay-- > 0) return false;
      arrivals.push_back(one.arrival);
      return true;
    });
    return arrivals;
  }
  void TakenIn(const WorkerClient& client) override { taken_in.push_back(&client); }
  void Refuse(WorkerClient& client, const absl::Status& why) override {
    refused.emplace_back(&client, why);
  }

  std::vector<const WorkerClient*> taken_in;
  std::vector<std::pair<const WorkerClient*, absl::Status>> refused;

 private:
  struct Willing {
    Arrival arrival;
    int delay = 0;
  };
  std::vector<Willing> willing_;
};

// Ends stretches early, so that members can change soon.
class BoundaryEveryFiveSteps final : public LoopHook {
 public:
  int64_t NextCall(int64_t step) const override { return (step / 5 + 1) * 5; }
  absl::StatusOr<std::string> Call(Coordinator&, int64_t) override { return std::string(); }
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

  // Starts the job on `workers`, beside so many that are in no job; `commits` as the loop would
  // have it.
  void Start(int workers, Mesh mesh, int spares = 0) {
    spec_.cluster = ClusterSpec::Local(workers, 1);
    spec_.plan = plan_;
    spec_.plan.mesh = mesh;
    auto data = DataSet::Open(files_, data_spec_);
    ASSERT_TRUE(data.ok()) << data.status();
    auto job = PrepareTraining(model_, training_, spec_, *data);
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *std::move(job);
    spec_.commits = JobRecovery::WhyNot(job_, spec_, may_grow_).empty();
    mortal_.clear();
    cluster_ =
        std::make_unique<InProcessCluster>(workers + spares, NewDataSetFactory(files_), kVersion);
    std::vector<WorkerClient*> clients;
    source_ = {};
    willing_ = {};
    for (WorkerClient* worker : cluster_->clients()) {
      mortal_.push_back(std::make_unique<MortalClient>(*worker));
      const bool is_spare = static_cast<int>(mortal_.size()) > workers;
      if (is_spare) source_.Add(*mortal_.back());
      if (!is_spare) clients.push_back(mortal_.back().get());
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
    out_.clear();
    left_.clear();
    options.on_lost = [this](const std::vector<WorkerClient*>& workers) {
      out_.insert(out_.end(), workers.begin(), workers.end());
    };
    options.on_left = [this](const std::vector<WorkerClient*>& workers) {
      left_.insert(left_.end(), workers.begin(), workers.end());
    };
    options.source = takes_willing_ ? static_cast<WorkerSource*>(&willing_) : &source_;
    options.wait = wait_;
    if (prepares_) options.prepares_after = absl::ZeroDuration();
    JobRecovery recovery(job_, options);
    auto result =
        Train(*coordinator_, job_, {.steps = kSteps, .hooks = {&boundaries_}, .losses = &recovery},
              [&](const TrainProgress& progress) {
                EXPECT_EQ(progress.step, static_cast<int64_t>(losses_.size()));
                losses_.push_back(progress.loss);
                if (at != nullptr) at(progress.step);
              });
    records_ = recovery.records();
    return result;
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
  BoundaryEveryFiveSteps boundaries_;
  SpareWorkers source_;
  WillingWorkers willing_;
  bool takes_willing_ = false;  // instead of source_
  bool may_grow_ = false;
  bool prepares_ = false;
  std::vector<RecoveryRecord> records_;
  absl::Duration wait_ = absl::ZeroDuration();
  std::vector<WorkerClient*> out_, left_;
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

TEST_F(JobRecoveryTest, WaitsForWorkersInThePlacesOfLostOnes) {
  RunUndisturbed();
  wait_ = absl::Minutes(5);
  Start(4, {.data = 4}, 3);
  source_.set_delay(5);
  const auto result = Run([&](int64_t step) {
    if (step == 10) mortal_[0]->Die();  // it reports
    if (step == 25) mortal_[3]->Die();
    if (step == 40) mortal_[4]->Die();  // which has come for the first
  });
  ExpectUndisturbed(result);
  ASSERT_THAT(lines_, SizeIs(3));
  for (const std::string& line : lines_) {
    EXPECT_THAT(line, HasSubstr("4 of 4 workers go on as dp=4 x tp=1 x pp=1 with worker:"));
  }
  EXPECT_EQ(coordinator_->size(), 4);
  // Survivors are the processes that they were.
  EXPECT_EQ(coordinator_->clients()[1], mortal_[1].get());
  EXPECT_EQ(coordinator_->clients()[2], mortal_[2].get());
}

// The rest of the replica stays: its state is that of the others.
TEST_F(JobRecoveryTest, WaitsForOneStageOfAReplica) {
  RunUndisturbed();
  wait_ = absl::Minutes(5);
  for (int victim = 0; victim < 4; ++victim) {
    SCOPED_TRACE(victim);
    Start(4, {.data = 2, .tensor = 1, .pipeline = 2}, 1);
    const auto result = Run([&](int64_t step) {
      if (step == 20) mortal_[static_cast<size_t>(victim)]->Die();
    });
    ExpectUndisturbed(result);
    EXPECT_THAT(out_, ElementsAre(mortal_[static_cast<size_t>(victim)].get()));
    EXPECT_EQ(coordinator_->size(), 4);
    EXPECT_EQ(coordinator_->clients()[static_cast<size_t>(victim)], mortal_[4].get());
  }
}

TEST_F(JobRecoveryTest, GoesOnWithoutWhereNobodyComes) {
  RunUndisturbed();
  wait_ = absl::Minutes(5);
  Start(3, {.data = 3});
  const auto result = Run([&](int64_t step) {
    if (step == 20) mortal_[1]->Die();
  });
  ExpectUndisturbed(result);
  EXPECT_EQ(coordinator_->size(), 2);
}

TEST_F(JobRecoveryTest, TakesAWorkerInAtALaterStep) {
  RunUndisturbed();
  Start(3, {.data = 3}, 1);
  source_.set_delay(1);
  const auto result = Run([&](int64_t step) {
    if (step == 10) mortal_[1]->Die();
  });
  ExpectUndisturbed(result);
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[0], HasSubstr("2 of 3 workers go on as dp=2"));
  EXPECT_THAT(lines_[1], HasSubstr("joined worker:3 (in this process); 3 workers instead of 2 go "
                                   "on as dp=3 x tp=1 x pp=1 from step "));
  EXPECT_EQ(coordinator_->clients()[1], mortal_[3].get());
}

// It is lost while it takes the state, or refuses the job: the others go on without it.
TEST_F(JobRecoveryTest, AWorkerThatCannotBeTakenInStopsNobody) {
  RunUndisturbed();
  for (const bool refuses : {false, true}) {
    for (const bool waits : {false, true}) {
      wait_ = waits ? absl::Minutes(5) : absl::ZeroDuration();
      Start(3, {.data = 3}, 1);
      if (refuses) mortal_[3]->RefuseToJoin();
      if (!refuses) mortal_[3]->DieWhenWritten();
      const auto result = Run([&](int64_t step) {
        if (step == 10) mortal_[0]->Die();
      });
      ExpectUndisturbed(result);
      EXPECT_EQ(coordinator_->size(), 2);
      EXPECT_THAT(out_, Contains(mortal_[3].get()));
    }
  }
}

TEST_F(JobRecoveryTest, WhoLeavesOnPurposeIsNoLoss) {
  RunUndisturbed();
  Start(3, {.data = 3});
  const auto result = Run([&](int64_t step) {
    if (step == 10) mortal_[0]->Leave();
  });
  ExpectUndisturbed(result);
  EXPECT_THAT(left_, ElementsAre(mortal_[0].get()));
  EXPECT_THAT(out_, IsEmpty());
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0],
              HasSubstr("left   worker:0 (in this process) on purpose; 2 workers instead "
                        "of 3 go on as dp=2"));
}

// Its state is nowhere else: the run stops, as by a signal, with what it has done.
TEST_F(JobRecoveryTest, TheRunStopsWhereItNeedsWhoLeaves) {
  Start(2, {.data = 1, .tensor = 1, .pipeline = 2});
  const auto result = Run([&](int64_t step) {
    if (step == 10) mortal_[1]->Leave();
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->stopped);
  EXPECT_LT(result->steps, kSteps);
  EXPECT_EQ(result->steps, static_cast<int64_t>(losses_.size()));
  EXPECT_THAT(left_, IsEmpty());
}

// Losses, leaves and workers that come, some of which die at once, at moments of the seed.
TEST_F(JobRecoveryTest, AnyScheduleOfEventsComesToTheSameBits) {
  RunUndisturbed();
  for (unsigned seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    wait_ = random() % 2 == 0 ? absl::Minutes(5) : absl::ZeroDuration();
    Start(4, {.data = 4}, 4);
    source_.set_delay(static_cast<int>(random() % 4));
    if (random() % 3 == 0) mortal_[4 + random() % 4]->DieWhenWritten();
    std::map<int64_t, std::pair<size_t, bool>> events;  // by step: whose, and whether it leaves
    for (int i = 0; i < 3; ++i) {
      events[static_cast<int64_t>(random() % kSteps)] = {random() % 8, random() % 3 == 0};
    }
    const auto result = Run([&](int64_t step) {
      const auto event = events.find(step);
      if (event == events.end()) return;
      MortalClient& whose = *mortal_[event->second.first];
      event->second.second ? whose.Leave() : whose.Die();
    });
    ExpectUndisturbed(result);
  }
}

TEST_F(JobRecoveryTest, AWorkerThatJoinsIsAFurtherReplica) {
  RunUndisturbed();
  takes_willing_ = true;
  Start(2, {.data = 2}, 2);
  willing_.Add(*mortal_[2], /*may_add=*/true, 2);
  willing_.Add(*mortal_[3], /*may_add=*/true, 5);
  ExpectUndisturbed(Run());
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[0], HasSubstr("joined worker:2 (in this process); 3 workers instead of 2 go "
                                   "on as dp=3 x tp=1 x pp=1 from step "));
  EXPECT_THAT(lines_[1], HasSubstr("4 workers instead of 3 go on as dp=4"));
  EXPECT_EQ(coordinator_->size(), 4);
  EXPECT_EQ(coordinator_->clients()[0], mortal_[0].get()) << "the others are who they were";
  EXPECT_THAT(willing_.taken_in, ElementsAre(mortal_[2].get(), mortal_[3].get()));
  EXPECT_EQ(job_.plan.micro_batches, 8);
}

// It also may be lost again, and so may those whose state it has.
TEST_F(JobRecoveryTest, AFurtherReplicaIsAReplicaAsOthers) {
  RunUndisturbed();
  takes_willing_ = true;
  for (const size_t victim : {0u, 2u}) {
    SCOPED_TRACE(victim);
    Start(2, {.data = 2}, 1);
    willing_.Add(*mortal_[2], /*may_add=*/true, 1);
    const auto result = Run([&](int64_t step) {
      if (step == 40) mortal_[victim]->Die();
    });
    ExpectUndisturbed(result);
    EXPECT_EQ(coordinator_->size(), 2);
    ASSERT_THAT(lines_, SizeIs(2));
    EXPECT_THAT(lines_[1], HasSubstr("2 of 3 workers go on as dp=2"));
  }
}

TEST_F(JobRecoveryTest, AReplicaOfStagesJoinsWhole) {
  RunUndisturbed();
  takes_willing_ = true;
  Start(4, {.data = 2, .tensor = 1, .pipeline = 2}, 2);
  willing_.Add(*mortal_[4], /*may_add=*/true, 1);
  willing_.Add(*mortal_[5], /*may_add=*/true, 4);
  ExpectUndisturbed(Run());
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[0], HasSubstr("worker:4 (in this process) waits"));
  EXPECT_THAT(lines_[0], HasSubstr("until there are 2, for one more replica"));
  EXPECT_THAT(lines_[1], HasSubstr("6 workers instead of 4 go on as dp=3 x tp=1 x pp=2"));
}

TEST_F(JobRecoveryTest, OneWorkerAloneCanBeJoined) {
  RunUndisturbed();
  takes_willing_ = true;
  EXPECT_THAT(JobRecovery::WhyNot(job_, spec_), HasSubstr("no worker has what another has"));
  may_grow_ = true;
  Start(1, {}, 1);
  EXPECT_TRUE(spec_.commits);
  willing_.Add(*mortal_[1], /*may_add=*/true, 3);
  const auto result = Run([&](int64_t step) {
    if (step == 45) mortal_[0]->Die();  // whose state the other one has by now
  });
  ExpectUndisturbed(result);
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[0], HasSubstr("2 workers instead of 1 go on as dp=2"));
  EXPECT_THAT(lines_[1], HasSubstr("1 of 2 workers go on as dp=1"));
}

TEST_F(JobRecoveryTest, ASpareTakesThePlaceOfALostWorkerAtOnce) {
  RunUndisturbed();
  takes_willing_ = true;
  for (const bool prepares : {false, true}) {
    prepares_ = prepares;
    Start(3, {.data = 3}, 1);
    willing_.Add(*mortal_[3], /*may_add=*/false, 0);
    const auto result = Run([&](int64_t step) {
      if (step == 20) mortal_[1]->Die();
    });
    ExpectUndisturbed(result);
    ASSERT_THAT(lines_, SizeIs(2));
    EXPECT_THAT(lines_[0], HasSubstr("spare  worker:3 (in this process) waits for the place of a"));
    EXPECT_THAT(lines_[1], HasSubstr("3 of 3 workers go on as dp=3 x tp=1 x pp=1 with worker:3 (in "
                                     "this process) in its place"));
    EXPECT_EQ(coordinator_->clients()[1], mortal_[3].get());
    ASSERT_THAT(records_, SizeIs(1));
    // The plan is the one that was.
    EXPECT_TRUE(records_[0].times.prepared);
    EXPECT_THAT(lines_[1], HasSubstr("(prepared)"));
    EXPECT_EQ(records_[0].after, 3);
    const ChangeTimes& times = records_[0].times;
    EXPECT_LE(records_[0].settle_seconds + times.plan + times.join + times.programs + times.state,
              records_[0].seconds);
  }
}

TEST_F(JobRecoveryTest, ASpareWaitsAndNoReplicaIsAdded) {
  RunUndisturbed();
  takes_willing_ = true;
  Start(2, {.data = 2}, 1);
  willing_.Add(*mortal_[2], /*may_add=*/false, 0);
  ExpectUndisturbed(Run());
  EXPECT_EQ(coordinator_->size(), 2);
  EXPECT_THAT(lines_, SizeIs(1));
}

// More replicas than micro-batches would have nothing to do.
TEST_F(JobRecoveryTest, WhoHasNoMicroBatchWaitsAsASpare) {
  plan_.micro_batches = 2;
  RunUndisturbed();
  takes_willing_ = true;
  Start(2, {.data = 2}, 1);
  willing_.Add(*mortal_[2], /*may_add=*/true, 1);
  const auto result = Run([&](int64_t step) {
    if (step == 30) mortal_[0]->Die();
  });
  ExpectUndisturbed(result);
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[0], HasSubstr("one micro-batch for each of its replicas, 2; --micro-batches"));
  EXPECT_THAT(lines_[1], HasSubstr("2 of 2 workers go on as dp=2"));
}

TEST_F(JobRecoveryTest, WhoIsRefusedIsToldWhyAndStopsNobody) {
  RunUndisturbed();
  takes_willing_ = true;
  Start(2, {.data = 2}, 2);
  mortal_[2]->RefuseToJoin();
  willing_.Add(*mortal_[2], /*may_add=*/true, 1);
  willing_.Add(*mortal_[3], /*may_add=*/true, 1);
  ExpectUndisturbed(Run());
  EXPECT_EQ(coordinator_->size(), 3) << "the other one has joined";
  ASSERT_THAT(willing_.refused, SizeIs(1));
  EXPECT_EQ(willing_.refused[0].first, mortal_[2].get());
  EXPECT_THAT(std::string(willing_.refused[0].second.message()), HasSubstr("another version"));
  EXPECT_THAT(lines_, Contains(HasSubstr("warning: a worker that has come cannot be used: ")));
}

TEST_F(JobRecoveryTest, WhoIsLostWhileItJoinsStopsNobody) {
  RunUndisturbed();
  takes_willing_ = true;
  Start(2, {.data = 2}, 1);
  mortal_[2]->DieWhenWritten();
  willing_.Add(*mortal_[2], /*may_add=*/true, 2);
  ExpectUndisturbed(Run());
  EXPECT_EQ(coordinator_->size(), 2);
  EXPECT_THAT(out_, ElementsAre(mortal_[2].get()));
  EXPECT_THAT(willing_.taken_in, IsEmpty());
}

// With programs that are made ahead, in a thread of their own, at any moment.
TEST_F(JobRecoveryTest, PreparedProgramsComeToTheSameBits) {
  RunUndisturbed();
  prepares_ = true;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Start(4, {.data = 4}, 2);
    source_.set_delay(static_cast<int>(random() % 3));
    const size_t first = random() % 4, second = (first + 1 + random() % 3) % 4;
    const auto first_at = static_cast<int64_t>(random() % 20);
    const int64_t second_at = first_at + 1 + static_cast<int64_t>(random() % 20);
    const auto result = Run([&](int64_t step) {
      if (step == first_at) mortal_[first]->Die();
      if (step == second_at) mortal_[second]->Die();
    });
    ExpectUndisturbed(result);
    EXPECT_GE(records_.size(), 1u);
  }
}

// What to do about it was cut off at the first semicolon.
TEST(CauseTextTest, HasTheAdviceAndNoConsequences) {
  const auto cause = [](const std::string& text) {
    return CauseText(absl::UnavailableError(text));
  };
  const std::string killed = "worker:1 (pid 4711) was killed by signal 9 (Killed)";
  EXPECT_EQ(cause(killed), killed);
  EXPECT_EQ(cause(killed + "; worker:0 (unix:/a) was lost while running step 7: it is gone"),
            killed);
  EXPECT_EQ(cause(killed + "; rank 0 lost rank 1 (unix:/b): reset; under way was 'g'"), killed);
  EXPECT_EQ(cause(killed + "; the job was aborted: worker:1 was lost"), killed);
  const std::string card =
      "worker:1 (pid 4711): cuda:0 cannot run: CUDA says cudaErrorECCUncorrectable (214); the card "
      "failed: start the process anew";
  EXPECT_EQ(cause(card + "; worker:0 was waiting for tensor 'g'; 2 more workers were waiting"),
            card);
  const std::string keys =
      "rank 0 lost rank 1 (10.0.0.8:4000): Handshake failed; it has no keys: see "
      "graph_runner cluster keys";
  EXPECT_EQ(cause(keys + "; under way was tensor 'g' from rank 1 (step 7)"), keys);
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
