// A job whose coordinator is lost goes on from its workers' memory, under the same plan or another,
// and comes to the bits of a run that nobody has disturbed.
#include "training/recovery/kept_state.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "executor/interfaces/input_source.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/data/data_set.h"
#include "training/job/job.h"
#include "training/job/resume.h"
#include "training/job/trainer.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSamples = 40;
constexpr int kFeatures = 6;
constexpr int kClasses = 3;
constexpr int64_t kSteps = 40;
constexpr uint64_t kDigest = 4711;
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

// What a coordinator that can be lost has of a worker: once it is, no call and no report reaches
// the other end.
class CutClient final : public WorkerClient {
 public:
  CutClient(WorkerClient& worker, const std::atomic<bool>& is_cut)
      : worker_(worker), is_cut_(is_cut) {}
  std::string name() const override { return worker_.name(); }
  uint64_t epoch() const override { return worker_.epoch(); }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override {
    if (is_cut_) return Lost();
    return worker_.Join(membership);
  }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                               const Partition& partition,
                                               const std::string& data) override {
    if (is_cut_) return Lost();
    return worker_.AddProgram(program, partition, data);
  }
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override {
    return is_cut_ ? Lost() : worker_.WriteVariable(name, local);
  }
  absl::StatusOr<Tensor> ReadVariable(const std::string& name) override {
    if (is_cut_) return Lost();
    return worker_.ReadVariable(name);
  }
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report) override {
    if (is_cut_) return Lost();
    const auto told = [&](const StepReport& done) {
      if (!is_cut_) report(done);
    };
    const absl::Status status =
        report == nullptr ? worker_.RunSteps(ranges, nullptr) : worker_.RunSteps(ranges, told);
    return is_cut_ ? Lost() : status;
  }
  absl::StatusOr<ControlReply> Answer(const ControlRequest& request) override {
    if (is_cut_) return Lost();
    return worker_.Answer(request);
  }
  void Abort(const absl::Status& reason) override {
    if (!is_cut_) worker_.Abort(reason);
  }

 private:
  absl::Status Lost() const {
    return absl::UnavailableError(absl::StrCat(worker_.name(), " was lost"));
  }

  WorkerClient& worker_;
  const std::atomic<bool>& is_cut_;
};

// Ends stretches early.
class BoundaryEverySevenSteps final : public LoopHook {
 public:
  int64_t NextCall(int64_t step) const override { return (step / 7 + 1) * 7; }
  absl::StatusOr<std::string> Call(Coordinator&, int64_t step) override {
    calls.push_back(step);
    if (on_call != nullptr) on_call(step);
    return std::string();
  }
  void SaveState(std::map<std::string, double>& state) const override {
    state["calls"] = static_cast<double>(calls.size());
  }
  std::vector<int64_t> calls;
  std::function<void(int64_t)> on_call;
};

// Says which step's samples are about to be read: from a worker's thread, in its forward pass.
class TellingSource final : public InputSource {
 public:
  TellingSource(std::unique_ptr<InputSource> source, const std::function<void(int64_t)>& on_fill)
      : source_(std::move(source)), on_fill_(on_fill) {}
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    if (on_fill_ != nullptr) on_fill_(step);
    return source_->Fill(step, input, first, count, target);
  }
  int64_t held_bytes() const override { return source_->held_bytes(); }
  int64_t max_bytes() const override { return source_->max_bytes(); }

 private:
  const std::unique_ptr<InputSource> source_;
  const std::function<void(int64_t)>& on_fill_;
};

// Two runs of one job, of which the first one's coordinator is lost.
class KeptStateTest : public ::testing::Test {
 protected:
  KeptStateTest() {
    Write("x", testing::RandomTensor({kSamples, kFeatures}, 3));
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSamples; ++i) labels.push_back((i * 7 + i / 5) % kClasses);
    Write("labels", Tensor::Of<int64_t>({kSamples}, labels));
    data_spec_.batch = 8;
    data_spec_.shuffle = true;
    training_.optimizer.kind = "adam";
    training_.optimizer.learning_rate = 0.01;
    plan_.strict = true;
    plan_.micro_batches = 8;
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  // The job on so many workers, with each step agreed on where no worker needs others in updates.
  void Prepare(int workers, Mesh mesh, int zero = 0) {
    spec_.cluster = ClusterSpec::Local(workers, 1);
    spec_.plan = plan_;
    spec_.plan.mesh = mesh;
    spec_.plan.zero = zero;
    spec_.plan.commits = zero == 0;
    spec_.commits = zero == 0;
    auto data = DataSet::Open(files_, data_spec_);
    ASSERT_TRUE(data.ok()) << data.status();
    auto job = PrepareTraining(model_, training_, spec_, *data);
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *std::move(job);
  }
  void StartWorkers(int workers) {
    const auto open = [this, factory = NewDataSetFactory(files_)](
                          const std::string& data) -> absl::StatusOr<std::unique_ptr<InputSource>> {
      auto source = factory(data);
      if (!source.ok()) return source.status();
      return std::make_unique<TellingSource>(*std::move(source), on_fill_);
    };
    cluster_ = std::make_unique<InProcessCluster>(workers, open, kVersion);
  }

  // Where in a step a coordinator is lost.
  enum class Moment {
    kForward,  // a worker reads the step's samples
    kTold,     // the step's progress is told, and others may be anywhere in the next one
    kBetween   // a stretch has ended with at least so many steps, and its hooks are called
  };
  void RunUntilLost(int64_t step, Moment moment = Moment::kTold) {
    std::vector<std::unique_ptr<CutClient>> cut;
    std::vector<WorkerClient*> clients;
    for (WorkerClient* const worker : cluster_->clients()) {
      if (static_cast<int>(clients.size()) == job_.plan.mesh.size()) break;
      cut.push_back(std::make_unique<CutClient>(*worker, is_cut_));
      clients.push_back(cut.back().get());
    }
    const auto lose = [this] {
      if (is_cut_.exchange(true)) return;
      for (WorkerClient* const worker : cluster_->clients()) {
        worker->Abort(absl::UnavailableError("the coordinator is gone"));
      }
    };
    Coordinator coordinator(clients);
    const absl::Status started =
        StartJob(coordinator, job_, spec_, kVersion, {}, nullptr, {.job_digest = kDigest});
    ASSERT_TRUE(started.ok()) << started;
    BoundaryEverySevenSteps boundaries;
    boundaries.on_call = [&](int64_t done) {
      if (moment == Moment::kBetween && done >= step) lose();
    };
    on_fill_ = [&](int64_t filled) {
      if (moment == Moment::kForward && filled == step) lose();
    };
    const auto result = Train(coordinator, job_, {.steps = kSteps, .hooks = {&boundaries}},
                              [&](const TrainProgress& progress) {
                                Take(progress);
                                if (moment == Moment::kTold && progress.step == step) lose();
                              });
    ASSERT_FALSE(result.ok());
    on_fill_ = nullptr;
    is_cut_ = false;
  }
  void Take(const TrainProgress& progress) {
    ASSERT_LE(progress.step, static_cast<int64_t>(losses_.size()));
    losses_.resize(static_cast<size_t>(progress.step));  // steps that are told again
    losses_.push_back(progress.loss);
  }

  absl::StatusOr<KeptSearch> Find(const std::vector<WorkerClient*>& others = {}) {
    return FindKeptState(Clients(), job_, /*evaluation=*/nullptr, kDigest, others);
  }
  // The workers of the next run.
  std::vector<WorkerClient*> Clients() const {
    if (!run_on_.empty()) return Pick(run_on_);
    std::vector<WorkerClient*> clients = cluster_->clients();
    clients.resize(static_cast<size_t>(job_.plan.mesh.size()));
    return clients;
  }
  std::vector<WorkerClient*> Pick(const std::vector<size_t>& workers) const {
    std::vector<WorkerClient*> picked;
    for (const size_t worker : workers) picked.push_back(cluster_->clients()[worker]);
    return picked;
  }
  // The next coordinator goes on with what is kept.
  absl::StatusOr<TrainResult> GoOn(const KeptState& state, BoundaryEverySevenSteps& boundaries) {
    JobStart start;
    start.job_digest = kDigest;
    if (state.source != nullptr) {
      start.recovers_job_id = state.job_id;
    } else {
      start.continues_job_id = state.job_id;
      start.newcomers = state.newcomers;
      start.handovers = state.handovers;
    }
    Coordinator coordinator(Clients());
    absl::Status started = StartJob(coordinator, job_, spec_, kVersion, {}, nullptr, start);
    if (started.ok() && state.source != nullptr) {
      started = Restore(coordinator, job_, *state.source);
    }
    if (!started.ok()) return started;
    return Train(coordinator, job_,
                 {.steps = kSteps,
                  .first_step = state.first_step(),
                  .kept_reports = state.reports,
                  .hooks = {&boundaries}},
                 [this](const TrainProgress& progress) { Take(progress); });
  }

  // What nobody has disturbed comes to.
  void RunUndisturbed() {
    Prepare(1, {});
    StartWorkers(1);
    Coordinator coordinator(Clients());
    const absl::Status started = StartJob(coordinator, job_, spec_, kVersion, {});
    ASSERT_TRUE(started.ok()) << started;
    const auto result =
        Train(coordinator, job_, {.steps = kSteps},
              [this](const TrainProgress& progress) { expected_losses_.push_back(progress.loss); });
    ASSERT_TRUE(result.ok()) << result.status();
    expected_ = result->parameters;
  }
  void ExpectUndisturbed(const TrainResult& result) {
    EXPECT_EQ(result.steps, kSteps);
    EXPECT_EQ(losses_, expected_losses_);
    ASSERT_EQ(result.parameters.size(), expected_.size());
    for (const auto& [name, value] : expected_) {
      EXPECT_TRUE(BitwiseEqual(result.parameters.at(name), value)) << name;
    }
  }

  const Graph model_ = Model();
  testing::FakeFileSystem files_;
  DataSpec data_spec_;
  TrainingSpec training_;
  Plan plan_;
  JobSpec spec_;
  PreparedJob job_;
  std::unique_ptr<InProcessCluster> cluster_;
  std::vector<size_t> run_on_;  // of the cluster; empty: the first ones
  std::atomic<bool> is_cut_{false};
  std::function<void(int64_t)> on_fill_;
  std::vector<double> losses_, expected_losses_;
  std::map<std::string, Tensor> expected_;
};

TEST_F(KeptStateTest, AStepUnderWayIsFinishedOrLeftOutAndNoneIsLost) {
  RunUndisturbed();
  for (int64_t lost = 0; lost < kSteps - 1; ++lost) {
    SCOPED_TRACE(lost);
    losses_.clear();
    Prepare(2, {.data = 2});
    StartWorkers(2);
    RunUntilLost(lost, lost % 2 == 0 ? Moment::kTold : Moment::kForward);
    const auto told = static_cast<int64_t>(losses_.size());
    const auto kept = Find();
    ASSERT_TRUE(kept.ok()) << kept.status();
    ASSERT_TRUE(kept->state.has_value()) << kept->why_not;
    EXPECT_GE(kept->state->steps, told);
    EXPECT_LE(kept->state->first_step(), told);
    EXPECT_THAT(kept->state->newcomers, IsEmpty());
    EXPECT_EQ(kept->state->source, nullptr);
    BoundaryEverySevenSteps boundaries;
    const auto result = GoOn(*kept->state, boundaries);
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectUndisturbed(*result);
  }
}

TEST_F(KeptStateTest, ALossBetweenStretchesCallsTheHooksOfThatStepAgain) {
  RunUndisturbed();
  Prepare(2, {.data = 2});
  StartWorkers(2);
  RunUntilLost(14, Moment::kBetween);
  const auto kept = Find();
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(kept->state.has_value()) << kept->why_not;
  EXPECT_EQ(kept->state->steps, 14);
  EXPECT_EQ(kept->state->loop.at("calls"), 1);  // as it was before the call of step 14
  BoundaryEverySevenSteps boundaries;
  const auto result = GoOn(*kept->state, boundaries);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(boundaries.calls, ElementsAre(14, 21, 28, 35));
  ExpectUndisturbed(*result);
}

TEST_F(KeptStateTest, OneWorkerIsLostAsWell) {
  RunUndisturbed();
  Prepare(2, {.data = 2});
  StartWorkers(2);
  RunUntilLost(10);
  Prepare(1, {});  // worker 0 alone
  const auto kept = Find();
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(kept->state.has_value()) << kept->why_not;
  BoundaryEverySevenSteps boundaries;
  const auto result = GoOn(*kept->state, boundaries);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectUndisturbed(*result);
}

TEST_F(KeptStateTest, WorkersThatHaveNothingTakeTheStateOfOthers) {
  RunUndisturbed();
  Prepare(2, {.data = 2});
  StartWorkers(4);
  RunUntilLost(10);
  Prepare(4, {.data = 4});
  const auto kept = Find();
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(kept->state.has_value()) << kept->why_not;
  EXPECT_THAT(kept->state->newcomers, ElementsAre(2, 3));
  EXPECT_THAT(kept->state->handovers, ElementsAre(Handover{0, 2}, Handover{0, 3}));
  BoundaryEverySevenSteps boundaries;
  const auto result = GoOn(*kept->state, boundaries);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectUndisturbed(*result);
}

// Worker 1 was a spare that had taken a lost one's place; worker 2 is new in the cluster file.
TEST_F(KeptStateTest, ASpareHasAPartThatNoWorkerOfTheRunHas) {
  RunUndisturbed();
  Prepare(2, {.data = 2}, /*zero=*/1);
  StartWorkers(3);
  RunUntilLost(14, Moment::kBetween);
  run_on_ = {0, 2};
  const auto without = Find();
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_FALSE(without->state.has_value());
  EXPECT_THAT(without->why_not, HasSubstr("worker:1"));
  const auto kept = Find(Pick({1}));
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(kept->state.has_value()) << kept->why_not;
  EXPECT_EQ(kept->state->steps, 14);
  EXPECT_NE(kept->state->source, nullptr);
  BoundaryEverySevenSteps boundaries;
  const auto result = GoOn(*kept->state, boundaries);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectUndisturbed(*result);
}

// The step under way is settled among those that were in it, wherever they are.
TEST_F(KeptStateTest, OnlySparesHaveTheState) {
  RunUndisturbed();
  Prepare(2, {.data = 2});
  StartWorkers(4);
  RunUntilLost(10);
  const auto told = static_cast<int64_t>(losses_.size());
  run_on_ = {2, 3};
  const auto kept = Find(Pick({0, 1}));
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(kept->state.has_value()) << kept->why_not;
  EXPECT_GE(kept->state->steps, told);
  EXPECT_NE(kept->state->source, nullptr);
  BoundaryEverySevenSteps boundaries;
  const auto result = GoOn(*kept->state, boundaries);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectUndisturbed(*result);
}

TEST_F(KeptStateTest, ASpareThatDoesNotAnswerHasNothing) {
  RunUndisturbed();
  Prepare(2, {.data = 2});
  StartWorkers(3);
  RunUntilLost(10);
  std::atomic<bool> is_gone{true};
  CutClient spare(*cluster_->clients()[2], is_gone);
  const auto kept = Find({&spare});
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(kept->state.has_value()) << kept->why_not;
  EXPECT_THAT(kept->state->newcomers, IsEmpty());
  BoundaryEverySevenSteps boundaries;
  const auto result = GoOn(*kept->state, boundaries);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectUndisturbed(*result);
}

TEST_F(KeptStateTest, AnotherPlanTakesWhatTheWorkersHoldBesideTheirVariables) {
  RunUndisturbed();
  Prepare(2, {.data = 2}, /*zero=*/1);
  StartWorkers(2);
  RunUntilLost(14, Moment::kBetween);
  Prepare(2, {.data = 2});
  const auto kept = Find();
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(kept->state.has_value()) << kept->why_not;
  ASSERT_NE(kept->state->source, nullptr);
  EXPECT_EQ(kept->state->steps, 14);
  BoundaryEverySevenSteps boundaries;
  const auto result = GoOn(*kept->state, boundaries);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectUndisturbed(*result);
}

TEST_F(KeptStateTest, TheNextCoordinatorMayBeLostBeforeItsFirstStep) {
  RunUndisturbed();
  Prepare(2, {.data = 2});
  StartWorkers(2);
  RunUntilLost(10);
  const auto first = Find();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(first->state.has_value()) << first->why_not;
  // It has joined one of the two.
  JobMembership membership;
  membership.job_id = 1;
  membership.version = kVersion;
  membership.commits = true;
  membership.job_digest = kDigest;
  membership.epoch = 2;
  membership.continues_job_id = first->state->job_id;
  membership.rank = RankId(0);
  ASSERT_TRUE(Clients()[0]->Join(membership).ok());
  const auto kept = Find();
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(kept->state.has_value()) << kept->why_not;
  EXPECT_EQ(kept->state->job_id, first->state->job_id);
  EXPECT_EQ(kept->state->steps, first->state->steps);
  BoundaryEverySevenSteps boundaries;
  const auto result = GoOn(*kept->state, boundaries);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectUndisturbed(*result);
}

TEST_F(KeptStateTest, StateThatIsTornIsNotTaken) {
  Prepare(2, {.data = 2}, /*zero=*/1);
  StartWorkers(2);
  RunUntilLost(10);  // within a step, and updates need both workers
  const auto kept = Find();
  ASSERT_TRUE(kept.ok()) << kept.status();
  // Where both had just ended the step, nothing is torn.
  if (kept->state.has_value()) GTEST_SKIP() << "the loss has met no step";
  EXPECT_THAT(kept->why_not, HasSubstr("; and "));
}

TEST_F(KeptStateTest, AnotherJobsStateIsNotLookedAt) {
  Prepare(2, {.data = 2});
  StartWorkers(2);
  RunUntilLost(10);
  const auto other = FindKeptState(Clients(), job_, nullptr, kDigest + 1);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE(other->state.has_value());
  EXPECT_THAT(other->why_not, IsEmpty());
  const auto none = FindKeptState(Clients(), job_, nullptr, 0);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->state.has_value());
}

}  // namespace
}  // namespace weft
