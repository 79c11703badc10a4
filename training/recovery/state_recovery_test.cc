// Jobs of which a worker is lost that had a part of the state alone, on workers of this process:
// those that are left take the state up from copies in their memory, from a checkpoint or from the
// beginning of the run, under a plan for so many, and come to the bits of a run that nobody has
// disturbed.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "distributed/in_process_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/folders.h"
#include "platform/testing/fake_file_system.h"
#include "training/checkpoint/checkpoint_store.h"
#include "training/checkpoint/checkpointer.h"
#include "training/checkpoint/state_source.h"
#include "training/data/data_file.h"
#include "training/job/trainer.h"
#include "training/recovery/job_recovery.h"

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

ValueType Floats(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// scores [N,3] = tanh(x [N,6] times v [6,6]) times w [6,3], with a frozen bias between.
Graph Model() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Floats({Dim::Symbol("N"), kFeatures}));
  const ValueId v = graph.AddVariable("v", Floats({kFeatures, kFeatures}),
                                      testing::RandomTensor({kFeatures, kFeatures}, 1), true);
  const ValueId frozen = graph.AddVariable("frozen", Floats({kFeatures}),
                                           testing::RandomTensor({kFeatures}, 4), false);
  const ValueId w = graph.AddVariable("w", Floats({kFeatures, kClasses}),
                                      testing::RandomTensor({kFeatures, kClasses}, 2), true);
  GraphBuilder builder(graph);
  const ValueId sum = builder.Op("Add", {builder.Op("MatMul", {x, v}), frozen});
  const ValueId scores = builder.Op("MatMul", {builder.Op("Tanh", {sum}), w});
  builder.Name(scores, "scores");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(scores);
  return graph;
}

// A worker of this process that can be lost.
class KillableClient final : public WorkerClient {
 public:
  explicit KillableClient(WorkerClient& worker) : worker_(worker) {}
  void Kill() {
    dead_.store(true);
    worker_.Abort(absl::UnavailableError("the process was killed"));
  }
  // It is lost as soon as a question like this is asked.
  void KillWhenAskedForHeld() { dies_when_read_ = true; }
  void Leave() { leaving_.store(true); }
  bool is_leaving() const override { return leaving_.load(); }

  std::string name() const override { return worker_.name(); }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override {
    if (dead_.load()) return Lost();
    return worker_.Join(membership);
  }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                               const Partition& partition,
                                               const std::string& data) override {
    if (dead_.load()) return Lost();
    return worker_.AddProgram(program, partition, data);
  }
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override {
    return dead_.load() ? Lost() : worker_.WriteVariable(name, local);
  }
  absl::StatusOr<Tensor> ReadVariable(const std::string& name) override {
    if (dead_.load()) return Lost();
    return worker_.ReadVariable(name);
  }
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report) override {
    if (dead_.load()) return Lost();
    const auto told = [&](const StepReport& done) {
      if (!dead_.load()) report(done);
    };
    const absl::Status status =
        report == nullptr ? worker_.RunSteps(ranges, nullptr) : worker_.RunSteps(ranges, told);
    return dead_.load() ? Lost() : status;
  }
  absl::StatusOr<ControlReply> Answer(const ControlRequest& request) override {
    if (dies_when_read_ && std::holds_alternative<ReadHeldRequest>(request)) Kill();
    if (dead_.load()) return Lost();
    return worker_.Answer(request);
  }
  void Abort(const absl::Status& reason) override {
    if (!dead_.load()) worker_.Abort(reason);
  }

 private:
  absl::Status Lost() const {
    return absl::UnavailableError(absl::StrCat(worker_.name(), " was lost"));
  }

  WorkerClient& worker_;
  std::atomic<bool> dead_{false};
  std::atomic<bool> leaving_{false};
  bool dies_when_read_ = false;
};

// Workers that are in no job yet: they come at once.
class WaitingWorkers final : public WorkerSource {
 public:
  void Add(WorkerClient& worker) { workers_.push_back(&worker); }
  void Want(int place) override {
    if (!workers_.empty()) wanted_.insert(place);
  }
  bool is_expected() const override { return !wanted_.empty(); }
  std::vector<Arrival> Take(absl::Time) override {
    std::vector<Arrival> arrivals;
    for (const int place : std::exchange(wanted_, {})) {
      if (workers_.empty()) break;
      arrivals.push_back({place, workers_.back(), ""});
      workers_.pop_back();
    }
    return arrivals;
  }

 private:
  std::vector<WorkerClient*> workers_;
  std::set<int> wanted_;
};

// Whether two of the workers hold each rank's snapshot after `step` steps of this job or more, or a
// worker is lost.
bool HoldSnapshots(Coordinator& coordinator, int64_t step) {
  std::map<std::pair<uint64_t, int64_t>, std::multiset<int>> ranks;  // by job and step
  for (WorkerClient* client : coordinator.clients()) {
    const auto reply = client->Answer(HeldStateRequest{});
    if (!reply.ok()) return true;
    for (const HeldSnapshot& held : std::get<HeldState>(*reply).snapshots) {
      if (held.is_whole) ranks[{held.key.job_id, held.key.step}].insert(held.key.rank);
    }
  }
  std::multiset<int> all;
  for (int rank = 0; rank < coordinator.size(); ++rank) {
    all.insert(rank);
    all.insert(rank);
  }
  for (const auto& [key, held] : ranks) {
    if (key.second >= step && held == all) return true;
  }
  return false;
}

// Ends stretches every five steps, and counts how often it was called.
class CountedBoundaries final : public LoopHook {
 public:
  int64_t NextCall(int64_t step) const override { return (step / 5 + 1) * 5; }
  absl::StatusOr<std::string> Call(Coordinator& coordinator, int64_t step) override {
    calls.push_back(step);
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (copies_arrive && coordinator.size() > 1 && !HoldSnapshots(coordinator, step - 10) &&
           absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return std::string();
  }
  std::vector<int64_t> calls;
  // No step begins before copies of ten steps ago have arrived; they are made every five steps at
  // most. Steps do not wait for copies, and take some microseconds here: a busy machine may have
  // done all of them before the first copy has arrived.
  bool copies_arrive = false;
};

// Runs no step of the job after 25 of them, as an evaluation does, and loses a worker then.
class LosesOneBetweenSteps final : public LoopHook {
 public:
  LosesOneBetweenSteps(std::string program, KillableClient& victim)
      : program_(std::move(program)), victim_(victim) {}
  int64_t NextCall(int64_t step) const override {
    return step < 25 ? 25 : std::numeric_limits<int64_t>::max();
  }
  absl::StatusOr<std::string> Call(Coordinator& coordinator, int64_t) override {
    victim_.Kill();
    StepRange none;
    none.program = program_;
    const absl::Status status = coordinator.RunSteps({none}, nullptr);
    if (!status.ok()) return status;
    return std::string();
  }

 private:
  const std::string program_;
  KillableClient& victim_;
};

class StateRecoveryTest : public ::testing::Test {
 protected:
  StateRecoveryTest() {
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

  // Workers 0 to `hosts`-1 lie on one host each, and so on around.
  void Start(int workers, Mesh mesh, int spares = 0, int hosts = 1) {
    spec_.cluster = ClusterSpec::Local(workers, 1);
    for (int i = 0; hosts > 1 && i < workers; ++i) {
      spec_.cluster.workers[static_cast<size_t>(i)].host = absl::StrCat("h", i * hosts / workers);
    }
    spec_.plan = plan_;
    spec_.plan.mesh = mesh;
    auto data = DataSet::Open(files_, data_spec_);
    ASSERT_TRUE(data.ok()) << data.status();
    auto job = PrepareTraining(model_, training_, spec_, *data);
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *std::move(job);
    spec_.commits = JobRecovery::WhyNot(job_, spec_).empty();
    spec_.replicate_every = workers > 1 ? every_ : 0;
    spec_.checkpoints = store_.has_value();
    killable_.clear();
    source_ = {};
    boundaries_.calls.clear();
    cluster_ =
        std::make_unique<InProcessCluster>(workers + spares, NewDataSetFactory(files_), kVersion);
    std::vector<WorkerClient*> clients;
    for (WorkerClient* worker : cluster_->clients()) {
      killable_.push_back(std::make_unique<KillableClient>(*worker));
      const bool is_spare = static_cast<int>(killable_.size()) > workers;
      if (is_spare) source_.Add(*killable_.back());
      if (!is_spare) clients.push_back(killable_.back().get());
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
    options.commits = spec_.commits;
    options.replicate_every = spec_.replicate_every;
    options.repartition = [this](const Plan& plan) {
      return PartitionTraining(job_, model_, training_, plan, kTrainingSteps);
    };
    options.say = [this](const std::string& line) { lines_.push_back(line); };
    options.source = &source_;
    options.wait = wait_;
    TrainOptions train;
    train.steps = kSteps;
    train.hooks = {&boundaries_};
    if (more_hooks_ != nullptr) train.hooks.push_back(more_hooks_);
    std::optional<Checkpointer> checkpointer;
    if (store_.has_value()) {
      CheckpointOptions often;
      often.every_steps = 7;
      checkpointer.emplace(*store_, CheckpointJob(), often, 0, RealClock(),
                           [](const std::string&) {});
      train.checkpointer = &*checkpointer;
      options.checkpoint = [&](int64_t after) -> absl::StatusOr<std::unique_ptr<StateSource>> {
        checkpointer->GiveUp("a worker is lost");
        std::vector<std::string> notes;
        auto newest = store_->OpenNewest(notes);
        if (!newest.ok()) return newest.status();
        if (!newest->has_value() || (**newest).index().step <= after) {
          return std::unique_ptr<StateSource>();
        }
        return std::unique_ptr<StateSource>(
            std::make_unique<CheckpointSource>(**std::move(newest)));
      };
    }
    JobRecovery recovery(job_, options);
    train.losses = &recovery;
    return Train(*coordinator_, job_, train, [&](const TrainProgress& progress) {
      EXPECT_EQ(progress.step, static_cast<int64_t>(losses_.size())) << "told once, in order";
      losses_.push_back(progress.loss);
      if (at != nullptr) at(progress.step);
    });
  }

  // As shards have them.
  void CutVariables() {
    plan_.tensor_shardings = {{"v", AxisSharding::Split(1)}, {"w", AxisSharding::Split(0)}};
  }

  // What nobody has disturbed comes to; with `shards` on so many workers.
  void RunUndisturbed(int shards = 1) {
    const int every = std::exchange(every_, 0);
    const Plan plan = plan_;
    plan_.zero = 0;
    Start(shards, {.data = 1, .tensor = shards, .pipeline = 1});
    const auto result = Run();
    ASSERT_TRUE(result.ok()) << result.status();
    expected_ = result->parameters;
    expected_losses_ = losses_;
    ASSERT_THAT(expected_losses_, SizeIs(kSteps));
    plan_ = plan;
    every_ = every;
  }

  void ExpectUndisturbed(const absl::StatusOr<TrainResult>& result) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->steps, kSteps);
    EXPECT_EQ(losses_, expected_losses_);
    for (const auto& [name, value] : expected_) {
      EXPECT_TRUE(BitwiseEqual(result->parameters.at(name), value)) << name;
    }
    // Hooks are not called again for steps that are done again.
    std::vector<int64_t> boundaries;
    for (int64_t step = 5; step <= kSteps; step += 5) boundaries.push_back(step);
    EXPECT_EQ(boundaries_.calls, boundaries);
  }

  std::function<void(int64_t)> KillAt(int64_t step, std::vector<int> victims) {
    return [this, step, victims = std::move(victims)](int64_t done) {
      if (done != step) return;
      for (const int victim : victims) killable_[static_cast<size_t>(victim)]->Kill();
    };
  }

  testing::FakeFileSystem files_;
  const Graph model_ = Model();
  DataSpec data_spec_;
  TrainingSpec training_;
  Plan plan_;
  JobSpec spec_;
  int every_ = 0;  // steps between copies
  PreparedJob job_;
  std::unique_ptr<InProcessCluster> cluster_;
  std::vector<std::unique_ptr<KillableClient>> killable_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<double> losses_;
  std::vector<std::string> lines_;
  CountedBoundaries boundaries_;
  LoopHook* more_hooks_ = nullptr;
  WaitingWorkers source_;
  absl::Duration wait_ = absl::ZeroDuration();
  std::optional<CheckpointStore> store_;
  std::map<std::string, Tensor> expected_;
  std::vector<double> expected_losses_;
};

// Each of the four in turn, for each kind of state that is split.
TEST_F(StateRecoveryTest, ZeroGoesOnWithOneFewer) {
  RunUndisturbed();
  boundaries_.copies_arrive = true;
  for (const int zero : {1, 2, 3}) {
    for (const int every : {1, 5}) {
      for (int victim = 0; victim < 4; ++victim) {
        SCOPED_TRACE(absl::StrCat("zero=", zero, ", every=", every, ", victim ", victim));
        plan_.zero = zero;
        every_ = every;
        Start(4, {.data = 4});
        ExpectUndisturbed(Run(KillAt(23, {victim})));
        ASSERT_THAT(lines_, SizeIs(1));
        EXPECT_THAT(lines_[0], HasSubstr("3 of 4 workers go on as dp=3"));
        EXPECT_THAT(lines_[0], HasSubstr("from copies in the memory of "));
        EXPECT_THAT(lines_[0], HasSubstr("done again, no sample is lost or repeated"));
        EXPECT_EQ(coordinator_->size(), 3);
      }
    }
  }
}

// Seeded moments: also before the first copy is whole, and within the last step.
TEST_F(StateRecoveryTest, AtAnyMoment) {
  RunUndisturbed();
  std::mt19937 random(7);
  int cut = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    plan_.zero = round % 2 == 0 ? 3 : 1;
    every_ = std::vector<int>{1, 2, 7}[static_cast<size_t>(round % 3)];
    Start(4, {.data = 4});
    KillableClient& victim = *killable_[static_cast<size_t>(round % 4)];
    const auto delay = absl::Microseconds(random() % 40000);
    std::thread killer([&] {
      absl::SleepFor(delay);
      victim.Kill();
    });
    const auto result = Run();
    killer.join();
    ExpectUndisturbed(result);
    if (!lines_.empty()) ++cut;
  }
  EXPECT_GT(cut, 10);
}

TEST_F(StateRecoveryTest, OneAfterTheOtherUntilOneIsLeft) {
  RunUndisturbed();
  boundaries_.copies_arrive = true;
  plan_.zero = 3;
  every_ = 3;
  Start(4, {.data = 4});
  const auto result = Run([&](int64_t step) {
    if (step == 10) killable_[0]->Kill();  // it reports
    if (step == 26) killable_[3]->Kill();
    if (step == 42) killable_[1]->Kill();
  });
  ExpectUndisturbed(result);
  EXPECT_THAT(lines_, SizeIs(3));
  EXPECT_EQ(coordinator_->size(), 1);
}

// A second one is lost while the others take its state up: who has the copy of the first is needed.
TEST_F(StateRecoveryTest, AnotherIsLostWhileTheStateIsRead) {
  RunUndisturbed();
  boundaries_.copies_arrive = true;
  plan_.zero = 3;
  every_ = 2;
  Start(4, {.data = 4}, 0, /*hosts=*/4);
  killable_[2]->KillWhenAskedForHeld();
  // Worker 1 keeps what worker 0 had, worker 3 what worker 2 had.
  ExpectUndisturbed(Run(KillAt(20, {0})));
  EXPECT_EQ(coordinator_->size(), 2);
}

TEST_F(StateRecoveryTest, AStageGoesToTheWorkerThatIsLeft) {
  RunUndisturbed();
  for (const int every : {1, 5}) {
    for (int victim = 0; victim < 2; ++victim) {
      SCOPED_TRACE(absl::StrCat("every=", every, ", victim ", victim));
      every_ = every;
      Start(2, {.data = 1, .tensor = 1, .pipeline = 2});
      ExpectUndisturbed(Run(KillAt(20, {victim})));
      ASSERT_THAT(lines_, SizeIs(1));
      EXPECT_THAT(lines_[0], HasSubstr("1 of 2 workers go on as dp=1 x tp=1 x pp=1"));
    }
  }
}

TEST_F(StateRecoveryTest, AStageGoesToAWorkerThatHasCome) {
  RunUndisturbed();
  wait_ = absl::Minutes(5);
  every_ = 4;
  for (int victim = 0; victim < 2; ++victim) {
    SCOPED_TRACE(victim);
    Start(2, {.data = 1, .tensor = 1, .pipeline = 2}, /*spares=*/1);
    ExpectUndisturbed(Run(KillAt(22, {victim})));
    ASSERT_THAT(lines_, SizeIs(1));
    EXPECT_THAT(lines_[0], HasSubstr("2 of 2 workers go on as dp=1 x tp=1 x pp=2 with worker:2"));
    EXPECT_EQ(coordinator_->clients()[static_cast<size_t>(victim)], killable_[2].get());
    EXPECT_EQ(coordinator_->clients()[static_cast<size_t>(1 - victim)],
              killable_[static_cast<size_t>(1 - victim)].get());
  }
}

// One of them costs its replica; both workers of a stage only its copy can replace.
TEST_F(StateRecoveryTest, AWholeHostOfStagesIsLost) {
  RunUndisturbed();
  boundaries_.copies_arrive = true;
  every_ = 5;
  Start(4, {.data = 2, .tensor = 1, .pipeline = 2}, 0, /*hosts=*/2);
  ExpectUndisturbed(Run(KillAt(21, {1})));
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], HasSubstr("no step is lost or repeated")) << "a replica is whole";
  for (const std::vector<int>& host : {std::vector<int>{0, 1}, std::vector<int>{2, 3}}) {
    Start(4, {.data = 2, .tensor = 1, .pipeline = 2}, 0, /*hosts=*/2);
    ExpectUndisturbed(Run(KillAt(21, host)));
    ASSERT_THAT(lines_, SizeIs(1));
    EXPECT_THAT(lines_[0], HasSubstr("2 of 4 workers go on as dp=1 x tp=1 x pp=2"));
    EXPECT_THAT(lines_[0], HasSubstr("from copies in the memory of 1 worker, step "));
  }
}

// Each replica has lost a stage, and not the same one: together they have all, without copies.
TEST_F(StateRecoveryTest, TwoReplicasMakeOneUp) {
  RunUndisturbed();
  for (const std::vector<int>& lost : {std::vector<int>{0, 3}, std::vector<int>{1, 2}}) {
    Start(4, {.data = 2, .tensor = 1, .pipeline = 2});
    ExpectUndisturbed(Run(KillAt(21, lost)));
    ASSERT_THAT(lines_, SizeIs(1));
    EXPECT_THAT(lines_[0], HasSubstr("2 of 4 workers go on as dp=1 x tp=1 x pp=2"));
    EXPECT_THAT(lines_[0], HasSubstr(": 0 steps are done again"));
  }
}

TEST_F(StateRecoveryTest, ShardsAreLost) {
  CutVariables();
  RunUndisturbed(/*shards=*/2);
  every_ = 5;
  for (int victim = 0; victim < 4; ++victim) {
    SCOPED_TRACE(victim);
    Start(4, {.data = 2, .tensor = 2, .pipeline = 1});
    ExpectUndisturbed(Run(KillAt(21, {victim})));
    ASSERT_THAT(lines_, SizeIs(1));
    EXPECT_THAT(lines_[0], HasSubstr("2 of 4 workers go on as dp=1 x tp=2 x pp=1"));
  }
  // The bits of a strict job depend on its shards.
  Start(2, {.data = 1, .tensor = 2, .pipeline = 1});
  const auto result = Run(KillAt(21, {1}));
  EXPECT_TRUE(absl::IsUnavailable(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("keeps its 2 shards"));
  wait_ = absl::Minutes(5);
  Start(2, {.data = 1, .tensor = 2, .pipeline = 1}, /*spares=*/1);
  ExpectUndisturbed(Run(KillAt(21, {1})));
}

TEST_F(StateRecoveryTest, OthersAreNotStrict) {
  RunUndisturbed();
  CutVariables();
  plan_.strict = false;
  every_ = 5;
  Start(2, {.data = 1, .tensor = 2, .pipeline = 1});
  const auto result = Run(KillAt(21, {0}));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_THAT(losses_, SizeIs(kSteps));
  for (size_t step = 0; step < losses_.size(); ++step) {
    EXPECT_NEAR(losses_[step], expected_losses_[step], 1e-4) << step;
  }
}

// In what a hook runs between two steps: all steps before are done, with copies or without.
TEST_F(StateRecoveryTest, OneIsLostInAHook) {
  RunUndisturbed();
  for (const int zero : {0, 3}) {
    SCOPED_TRACE(zero);
    plan_.zero = zero;
    every_ = zero == 0 ? 0 : 4;
    Start(4, {.data = 4});
    LosesOneBetweenSteps hook(job_.programs.front().name, *killable_[2]);
    more_hooks_ = &hook;
    ExpectUndisturbed(Run());
    more_hooks_ = nullptr;
    EXPECT_THAT(lines_, SizeIs(1));
    EXPECT_EQ(coordinator_->size(), 3);
  }
}

TEST_F(StateRecoveryTest, WhoLeavesHandsItsPartOver) {
  RunUndisturbed();
  plan_.zero = 3;
  every_ = 50;
  Start(3, {.data = 3});
  const auto result = Run([&](int64_t step) {
    if (step == 20) killable_[1]->Leave();
  });
  ExpectUndisturbed(result);
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], HasSubstr("left   worker:1"));
  EXPECT_EQ(coordinator_->size(), 2);
}

TEST_F(StateRecoveryTest, TheNewestCheckpointIsTakenWhereThereAreNoCopies) {
  RunUndisturbed();
  std::string root = std::filesystem::temp_directory_path() / "weft-recovery-XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  for (int victim = 0; victim < 2; ++victim) {
    SCOPED_TRACE(victim);
    store_.emplace(RealFileSystem(), RealFolders(), absl::StrCat(root, "/", victim));
    Start(2, {.data = 1, .tensor = 1, .pipeline = 2});
    ExpectUndisturbed(Run(KillAt(40, {victim})));
    ASSERT_THAT(lines_, SizeIs(1));
    EXPECT_THAT(lines_[0], HasSubstr("from checkpoint '"));
  }
  std::filesystem::remove_all(root);
}

TEST_F(StateRecoveryTest, WithoutCopiesAndCheckpointsTheRunEnds) {
  plan_.zero = 3;
  Start(3, {.data = 3});
  const auto result = Run(KillAt(20, {1}));
  EXPECT_TRUE(absl::IsUnavailable(result.status())) << result.status();
  const std::string text(result.status().message());
  EXPECT_THAT(text, HasSubstr("worker:1"));
  EXPECT_THAT(text, HasSubstr("cannot go on without it"));
  EXPECT_THAT(text, HasSubstr("hold no copies of it (--replicate), and it has no checkpoints"));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(StateRecoveryTest, TwoNeighboursAndTheirCopiesAreTooMany) {
  plan_.zero = 3;
  every_ = 2;
  Start(4, {.data = 4});  // 3 would divide no variable's rows
  const auto result = Run(KillAt(20, {0, 1}));
  EXPECT_TRUE(absl::IsUnavailable(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("no state of the job is left"));
}

}  // namespace
}  // namespace weft
