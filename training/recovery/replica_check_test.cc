// Jobs of several replicas on workers of this process, in whose variables bits are flipped between
// steps.
#include "training/recovery/replica_check.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "distributed/in_process_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/job/trainer.h"
#include "training/recovery/job_recovery.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSamples = 40;
constexpr int kFeatures = 6;
constexpr int kClasses = 3;
constexpr int64_t kSteps = 30;
constexpr int64_t kFlippedAfter = 11;
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

absl::Status FlipBit(WorkerClient& worker, const std::string& variable, int bit = 20) {
  absl::StatusOr<Tensor> value = worker.ReadVariable(variable);
  if (!value.ok()) return value.status();
  static_cast<uint8_t*>(value->raw_data())[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
  return worker.WriteVariable(variable, *value);
}

// A worker with faults that a test turns on.
class FaultyClient final : public WorkerClient {
 public:
  explicit FaultyClient(WorkerClient& worker) : worker_(worker) {}
  // The next digest of its first variable is wrong.
  void MisreadOnce() { misreads_ = true; }
  // A bit of what is written to it flips.
  void ForgetWhatIsWritten() { forgets_ = true; }

  std::string name() const override { return worker_.name(); }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override {
    return worker_.Join(membership);
  }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                               const Partition& partition,
                                               const std::string& data) override {
    return worker_.AddProgram(program, partition, data);
  }
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override {
    const absl::Status written = worker_.WriteVariable(name, local);
    return written.ok() && forgets_ ? FlipBit(worker_, name, 3) : written;
  }
  absl::StatusOr<Tensor> ReadVariable(const std::string& name) override {
    return worker_.ReadVariable(name);
  }
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report) override {
    return worker_.RunSteps(ranges, report);
  }
  absl::StatusOr<ControlReply> Answer(const ControlRequest& request) override {
    absl::StatusOr<ControlReply> reply = worker_.Answer(request);
    if (!reply.ok()) return reply;
    auto* const digests = std::get_if<VariableDigests>(&*reply);
    if (digests != nullptr && std::exchange(misreads_, false)) digests->digests.front() ^= 1;
    return reply;
  }
  void Abort(const absl::Status& reason) override { worker_.Abort(reason); }

 private:
  WorkerClient& worker_;
  bool misreads_ = false;
  bool forgets_ = false;
};

// Calls `act` after so many steps.
class At final : public LoopHook {
 public:
  At(std::vector<int64_t> steps, std::function<absl::Status(Coordinator&, int64_t)> act)
      : steps_(std::move(steps)), act_(std::move(act)) {}
  int64_t NextCall(int64_t step) const override {
    for (const int64_t one : steps_) {
      if (one > step) return one;
    }
    return int64_t{1} << 60;
  }
  absl::StatusOr<std::string> Call(Coordinator& coordinator, int64_t step) override {
    const absl::Status status = act_(coordinator, step);
    if (!status.ok()) return status;
    return std::string();
  }

 private:
  const std::vector<int64_t> steps_;  // ascending
  const std::function<absl::Status(Coordinator&, int64_t)> act_;
};

class ReplicaCheckTest : public ::testing::Test {
 protected:
  ReplicaCheckTest() {
    Write("x", testing::RandomTensor({kSamples, kFeatures}, 3));
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSamples; ++i) labels.push_back((i * 7 + i / 5) % kClasses);
    Write("labels", Tensor::Of<int64_t>({kSamples}, labels));
    data_spec_.batch = 12;
    data_spec_.shuffle = true;
    training_.optimizer.kind = "adam";
    training_.optimizer.learning_rate = 0.01;
    plan_.commits = true;
    plan_.micro_batches = 12;
    options_.every = 1;
    options_.say = [this](const std::string& line) { lines_.push_back(line); };
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  void Start(Mesh mesh) {
    spec_.cluster = ClusterSpec::Local(mesh.size(), 1);
    spec_.plan = plan_;
    spec_.plan.mesh = mesh;
    auto data = DataSet::Open(files_, data_spec_);
    ASSERT_TRUE(data.ok()) << data.status();
    auto job = PrepareTraining(model_, training_, spec_, *data);
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *std::move(job);
    spec_.commits = JobRecovery::WhyNot(job_, spec_).empty();
    cluster_ = std::make_unique<InProcessCluster>(mesh.size(), NewDataSetFactory(files_), kVersion);
    workers_.clear();
    std::vector<WorkerClient*> clients;
    for (WorkerClient* worker : cluster_->clients()) {
      workers_.push_back(std::make_unique<FaultyClient>(*worker));
      clients.push_back(workers_.back().get());
    }
    coordinator_ = std::make_unique<Coordinator>(clients);
    const absl::Status started = StartJob(*coordinator_, job_, spec_, kVersion, {});
    ASSERT_TRUE(started.ok()) << started;
    lines_.clear();
  }

  // Steps with what happens between them, then the check.
  absl::StatusOr<TrainResult> Run(LoopHook* faults, bool checks = true) {
    ReplicaCheck check(job_, 0, options_);
    TrainOptions train;
    train.steps = kSteps;
    if (faults != nullptr) train.hooks.push_back(faults);
    if (checks) train.hooks.push_back(&check);
    JobRecoveryOptions recovering;
    recovering.repartition = [this](const Plan& plan) {
      return PartitionTraining(job_, model_, training_, plan, kTrainingSteps);
    };
    recovering.say = [this](const std::string& line) { lines_.push_back(line); };
    JobRecovery recovery(job_, recovering);
    recovery_ = &recovery;
    if (spec_.commits) train.losses = &recovery;
    auto result = Train(*coordinator_, job_, train, [](const TrainProgress&) {});
    recovery_ = nullptr;
    summary_ = check.summary();
    return result;
  }

  // Flips a bit after kFlippedAfter steps.
  At Flip(int rank, std::string variable) {
    return At({kFlippedAfter}, [rank, variable](Coordinator& coordinator, int64_t) {
      return FlipBit(*coordinator.clients()[static_cast<size_t>(rank)], variable);
    });
  }

  // What the job comes to undisturbed and unwatched.
  std::map<std::string, Tensor> Undisturbed(Mesh mesh) {
    Start(mesh);
    const auto result = Run(nullptr, /*checks=*/false);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->parameters : std::map<std::string, Tensor>();
  }

  static void ExpectEqual(const std::map<std::string, Tensor>& expected,
                          const absl::StatusOr<TrainResult>& result) {
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_THAT(expected, SizeIs(2));
    EXPECT_EQ(result->steps, kSteps);
    for (const auto& [name, value] : expected) {
      EXPECT_TRUE(BitwiseEqual(result->parameters.at(name), value)) << name;
    }
  }

  // The names of all that have copies.
  std::set<std::string> VariablesOfRank(int rank) const {
    std::set<std::string> names;
    for (const auto& [name, shard] : coordinator_->shards(rank)) names.insert(name);
    return names;
  }

  testing::FakeFileSystem files_;
  const Graph model_ = Model();
  DataSpec data_spec_;
  TrainingSpec training_;
  Plan plan_;
  JobSpec spec_;
  PreparedJob job_;
  ReplicaCheckOptions options_;
  std::unique_ptr<InProcessCluster> cluster_;
  std::vector<std::unique_ptr<FaultyClient>> workers_;
  std::unique_ptr<Coordinator> coordinator_;
  JobRecovery* recovery_ = nullptr;  // of the run under way
  std::vector<std::string> lines_;
  ReplicaCheckSummary summary_;
};

TEST_F(ReplicaCheckTest, TheMajorityRepairsAnyVariableOfAnyReplica) {
  for (const int replicas : {3, 4}) {
    const auto expected = Undisturbed({.data = replicas});
    const std::set<std::string> variables = VariablesOfRank(0);
    EXPECT_THAT(variables, SizeIs(6)) << "two weights with two moments each";
    int rank = 0;
    for (const std::string& variable : variables) {
      SCOPED_TRACE(absl::StrCat(variable, " of rank ", rank, " of ", replicas));
      Start({.data = replicas});
      At flip = Flip(rank, variable);
      ExpectEqual(expected, Run(&flip));
      EXPECT_EQ(summary_.variables, 6);
      EXPECT_EQ(summary_.checks, kSteps);
      EXPECT_EQ(summary_.last_equal, kSteps);
      ASSERT_THAT(summary_.divergences, SizeIs(1));
      const Divergence& found = summary_.divergences[0];
      EXPECT_EQ(found.step, kFlippedAfter);
      EXPECT_EQ(found.since, kFlippedAfter - 1);
      EXPECT_THAT(found.variables, ElementsAre(variable));
      EXPECT_THAT(found.workers, ElementsAre(HasSubstr(absl::StrCat("worker:", rank))));
      EXPECT_EQ(found.action, "repaired");
      EXPECT_EQ(found.fault, "passing");
      ASSERT_THAT(lines_, SizeIs(2));
      EXPECT_THAT(lines_[1],
                  AllOf(HasSubstr(absl::StrCat("worker:", rank)),
                        HasSubstr("equal bits after step 12"), HasSubstr("the fault has passed")));
      EXPECT_THAT(lines_[0],
                  AllOf(HasSubstr(absl::StrCat("in '", variable, "' than most replicas")),
                        HasSubstr("after step 11, and had equal ones after step 10")));
      rank = (rank + 1) % replicas;
    }
  }
}

TEST_F(ReplicaCheckTest, OfTwoCopiesNobodyKnowsWhichIsRight) {
  Start({.data = 2});
  At flip = Flip(1, "w");
  const auto result = Run(&flip);
  EXPECT_TRUE(absl::IsDataLoss(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("worker:0"), HasSubstr("worker:1"), HasSubstr("'w' after step 11"),
                    HasSubstr("no majority says which is right")));
  EXPECT_TRUE(summary_.has_ended);
  EXPECT_EQ(summary_.last_equal, kFlippedAfter - 1);
  ASSERT_THAT(summary_.divergences, SizeIs(1));
  EXPECT_THAT(summary_.divergences[0].workers, SizeIs(2));
  EXPECT_EQ(summary_.divergences[0].action, "stopped");
}

TEST_F(ReplicaCheckTest, AShardIsRepairedFromTheSameShardOfAnotherReplica) {
  const Mesh mesh = {.data = 3, .tensor = 2};
  plan_.tensor_shardings["v"] = AxisSharding::Split(1);
  plan_.tensor_shardings["w"] = AxisSharding::Split(0);
  const auto expected = Undisturbed(mesh);
  for (const int rank : {0, 3, 4}) {
    SCOPED_TRACE(rank);
    Start(mesh);
    ASSERT_EQ(coordinator_->shards(rank).at("v").tensor_shards, 2);
    At flip = Flip(rank, "v");
    ExpectEqual(expected, Run(&flip));
    EXPECT_EQ(summary_.variables, 12) << "six of each shard";
    ASSERT_THAT(summary_.divergences, SizeIs(1));
    EXPECT_THAT(summary_.divergences[0].workers,
                ElementsAre(HasSubstr(absl::StrCat("worker:", rank))));
    ASSERT_THAT(lines_, SizeIs(2));
    const int right = rank == 0 ? 2 : rank % 2;  // the first other one of the same shard
    EXPECT_THAT(lines_[0], HasSubstr(absl::StrCat("such as worker:", right)));
  }
}

TEST_F(ReplicaCheckTest, StagesOfReplicasAreComparedEachWithItsLike) {
  const Mesh mesh = {.data = 3, .pipeline = 2};
  const auto expected = Undisturbed(mesh);
  Start(mesh);
  int rank = -1;  // the last that has w
  for (int r = 0; r < coordinator_->size(); ++r) {
    if (coordinator_->shards(r).contains("w")) rank = r;
  }
  ASSERT_GE(rank, 0);
  At flip = Flip(rank, "w");
  ExpectEqual(expected, Run(&flip));
  EXPECT_EQ(summary_.variables, 6);
  ASSERT_THAT(summary_.divergences, SizeIs(1));
  EXPECT_THAT(summary_.divergences[0].workers,
              ElementsAre(HasSubstr(absl::StrCat("worker:", rank))));
}

TEST_F(ReplicaCheckTest, WhatZeroSplitsHasNoCopy) {
  plan_.zero = 1;
  const auto expected = Undisturbed({.data = 3});
  Start({.data = 3});
  At weight = Flip(1, "w");
  ExpectEqual(expected, Run(&weight));
  EXPECT_EQ(summary_.variables, 2) << "the weights, not their moments";
  EXPECT_THAT(summary_.divergences, SizeIs(1));

  Start({.data = 3});
  std::string moment;
  for (const std::string& name : VariablesOfRank(1)) {
    if (name != "w" && absl::StartsWith(name, "w")) moment = name;
  }
  ASSERT_GT(coordinator_->shards(1).at(moment).data_shards, 1);
  At slot = Flip(1, moment);
  const auto unseen = Run(&slot);
  ASSERT_TRUE(unseen.ok()) << unseen.status();
  EXPECT_THAT(summary_.divergences, IsEmpty());
  plan_.zero = 3;
  Start({.data = 3});
  ASSERT_TRUE(Run(nullptr).ok());
  EXPECT_EQ(summary_.checks, 0);
}

TEST_F(ReplicaCheckTest, StopAndIgnoreDoAsTheySay) {
  options_.on_divergence = OnDivergence::kStop;
  Start({.data = 3});
  At flip = Flip(2, "v");
  const auto stopped = Run(&flip);
  EXPECT_TRUE(absl::IsDataLoss(stopped.status())) << stopped.status();
  EXPECT_THAT(std::string(stopped.status().message()),
              AllOf(HasSubstr("worker:2"), HasSubstr("'v'"), HasSubstr("the run has ended")));
  EXPECT_TRUE(summary_.has_ended);

  options_.on_divergence = OnDivergence::kIgnore;
  Start({.data = 3});
  const auto ignored = Run(&flip);
  ASSERT_TRUE(ignored.ok()) << ignored.status();
  EXPECT_EQ(summary_.last_equal, kFlippedAfter - 1);
  EXPECT_THAT(summary_.divergences, SizeIs(kSteps - kFlippedAfter + 1));
  EXPECT_LT(lines_.size(), summary_.divergences.size()) << "once for the same finding";
}

// Compared every ten steps, a flip after 11 steps is found after 20. The step after the repair is
// compared, too.
TEST_F(ReplicaCheckTest, TheStepsInBetweenAreNamed) {
  options_.every = 10;
  Start({.data = 3});
  At flip = Flip(1, "w");
  const auto result = Run(&flip);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_THAT(summary_.divergences, SizeIs(1));
  EXPECT_EQ(summary_.divergences[0].since, 10);
  EXPECT_EQ(summary_.divergences[0].step, 20);
  EXPECT_EQ(summary_.divergences[0].fault, "passing");
  EXPECT_EQ(summary_.checks, 4) << "10, 20, 21, 30";
}

// The last steps are compared, too, before the result is read.
TEST_F(ReplicaCheckTest, TheEndOfARunIsCompared) {
  options_.every = 1000;
  const auto expected = Undisturbed({.data = 3});
  Start({.data = 3});
  At flip({kSteps}, [](Coordinator& coordinator, int64_t) {
    return FlipBit(*coordinator.clients()[0], "w");  // whose copy is the result
  });
  ExpectEqual(expected, Run(&flip));
  EXPECT_EQ(summary_.checks, 1);
  ASSERT_THAT(summary_.divergences, SizeIs(1));
  EXPECT_EQ(summary_.divergences[0].fault, "") << "no step came after it";
}

TEST_F(ReplicaCheckTest, AWrongReadingIsToldFromWrongMemory) {
  const auto expected = Undisturbed({.data = 2});
  Start({.data = 2});
  At misread({kFlippedAfter}, [this](Coordinator&, int64_t) {
    workers_[1]->MisreadOnce();
    return absl::OkStatus();
  });
  ExpectEqual(expected, Run(&misread));
  ASSERT_THAT(summary_.divergences, SizeIs(1));
  EXPECT_EQ(summary_.divergences[0].action, "read again");
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], HasSubstr("an error of reading that has passed"));
}

TEST_F(ReplicaCheckTest, ALastingFaultEndsAJobThatCannotGoOnWithoutTheWorker) {
  Start({.data = 3});
  At twice({5, 9}, [](Coordinator& coordinator, int64_t) {
    return FlipBit(*coordinator.clients()[2], "w");
  });
  const auto second = Run(&twice);
  EXPECT_TRUE(absl::IsDataLoss(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr("worker:2"), HasSubstr("after step 9"),
                    HasSubstr("for the second time: a lasting fault")));
  ASSERT_THAT(summary_.divergences, SizeIs(2));
  EXPECT_EQ(summary_.divergences[0].action, "repaired");
  EXPECT_EQ(summary_.divergences[0].fault, "passing") << "it has come back later";
  EXPECT_EQ(summary_.divergences[1].fault, "lasting");

  Start({.data = 3});
  workers_[1]->ForgetWhatIsWritten();
  At flip = Flip(1, "v");
  const auto forgets = Run(&flip);
  EXPECT_TRUE(absl::IsDataLoss(forgets.status())) << forgets.status();
  EXPECT_THAT(std::string(forgets.status().message()),
              HasSubstr("also after it was given the majority's: a lasting fault"));
}

// A processor that errs does so in the next step, too, whatever bits it begins with. That is looked
// at at once, however seldom replicas are compared.
TEST_F(ReplicaCheckTest, TheStepAfterARepairTellsALastingFault) {
  options_.every = 10;
  Start({.data = 3});
  At each_step({20, 21}, [](Coordinator& coordinator, int64_t) {
    return FlipBit(*coordinator.clients()[1], "v");
  });
  const auto result = Run(&each_step);
  EXPECT_TRUE(absl::IsDataLoss(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("worker:1"), HasSubstr("after step 21"),
                    HasSubstr("for the second time, in the step after its repair: a lasting")));
  ASSERT_THAT(summary_.divergences, SizeIs(2));
  EXPECT_EQ(summary_.divergences[0].action, "repaired");
  EXPECT_EQ(summary_.divergences[0].fault, "lasting");
  EXPECT_EQ(summary_.divergences[1].fault, "lasting");
}

// Two different workers, each once, are two accidents.
TEST_F(ReplicaCheckTest, OneFaultOfEachIsNoLastingFault) {
  const auto expected = Undisturbed({.data = 4});
  Start({.data = 4});
  At two({5, 9}, [](Coordinator& coordinator, int64_t step) {
    return FlipBit(*coordinator.clients()[step == 5 ? 2 : 3], "w");
  });
  ExpectEqual(expected, Run(&two));
  ASSERT_THAT(summary_.divergences, SizeIs(2));
  for (const Divergence& one : summary_.divergences) EXPECT_EQ(one.fault, "passing");
}

// Also where the second comes in the step after the first one's repair.
TEST_F(ReplicaCheckTest, TheNextWorkersFaultIsNotTheLastOnes) {
  const auto expected = Undisturbed({.data = 4});
  Start({.data = 4});
  At two({5, 6}, [](Coordinator& coordinator, int64_t step) {
    return FlipBit(*coordinator.clients()[step == 5 ? 2 : 3], "w");
  });
  ExpectEqual(expected, Run(&two));
  ASSERT_THAT(summary_.divergences, SizeIs(2));
  for (const Divergence& one : summary_.divergences) EXPECT_EQ(one.fault, "passing");
  EXPECT_THAT(lines_, SizeIs(4)) << "two repairs, each passed";
}

// A strict job has the same bits on three workers as on four.
TEST_F(ReplicaCheckTest, AJobGoesOnWithoutAWorkerOfALastingFault) {
  plan_.strict = true;
  plan_.micro_batches = 12;
  const auto expected = Undisturbed({.data = 4});
  options_.leave_out = [this](int rank) { recovery_->LeaveOut(rank); };
  Start({.data = 4});
  ASSERT_TRUE(spec_.commits);
  At twice({5, 9}, [](Coordinator& coordinator, int64_t) {
    return FlipBit(*coordinator.clients()[2], "w");
  });
  ExpectEqual(expected, Run(&twice));
  EXPECT_EQ(coordinator_->size(), 3);
  EXPECT_FALSE(summary_.has_ended);
  EXPECT_EQ(summary_.last_equal, kSteps);
  ASSERT_THAT(summary_.divergences, SizeIs(2));
  EXPECT_EQ(summary_.divergences[1].action, "left out");
  ASSERT_THAT(lines_, SizeIs(3));
  EXPECT_THAT(lines_[2],
              AllOf(HasSubstr("worker:2"), HasSubstr("a lasting fault, so take the machine out"),
                    HasSubstr("3 of 4 workers go on as dp=3")));
}

// Without faults nothing differs, in any bit that a replica computes for itself; and the check
// changes none.
TEST_F(ReplicaCheckTest, ReplicasNeverDifferByThemselves) {
  training_.clip_norm = 0.1;
  training_.average_decay = 0.9;
  options_.on_divergence = OnDivergence::kStop;
  plan_.commits = false;
  for (const std::string& kind : OptimizerKinds()) {
    training_.optimizer.kind = kind;
    training_.optimizer.learning_rate = UsualLearningRate(kind);
    for (const int replicas : {2, 3, 4, 5}) {
      SCOPED_TRACE(absl::StrCat(kind, " on ", replicas));
      const auto expected = Undisturbed({.data = replicas});
      Start({.data = replicas});
      ExpectEqual(expected, Run(nullptr));
      EXPECT_EQ(summary_.checks, kSteps);
      EXPECT_GE(summary_.variables, 2);
      EXPECT_THAT(lines_, IsEmpty());
    }
  }
}

// A clock that moves when a test or its reader says so.
class StepClock final : public Clock {
 public:
  absl::Time Now() override { return absl::UnixEpoch(); }
  int64_t MonotonicNanos() override { return now += tick; }
  bool WaitUntil(CondVar&, Mutex&, absl::Time) override { return false; }
  int64_t now = 0;
  int64_t tick = 0;
};

// The pause of a check is one look at the clock after the other.
TEST_F(ReplicaCheckTest, ChoosesItsStepsByTimeOfStepsAndPause) {
  Start({.data = 2});
  StepClock clock;
  options_.every = 0;
  options_.clock = &clock;
  ReplicaCheck check(job_, 0, options_);
  EXPECT_EQ(check.NextCall(0), 10);
  int64_t step = 0;
  int64_t steps = 10;
  const auto run = [&](double step_seconds, double pause_seconds) {
    clock.tick = 0;
    clock.now += static_cast<int64_t>(static_cast<double>(steps) * step_seconds * 1e9);
    step += steps;
    clock.tick = static_cast<int64_t>(pause_seconds * 1e9);
    // The first look is part of the steps' time, as little as it is.
    const auto called = check.Call(*coordinator_, step);
    EXPECT_TRUE(called.ok()) << called.status();
    clock.tick = 0;
    steps = check.NextCall(step) - step;
    return steps;
  };
  // Steps of 10 ms and checks of 1 ms: every 20 steps by the part of the time, and twice a second.
  EXPECT_NEAR(static_cast<double>(run(0.01, 0.001)), 50, 1);
  EXPECT_NEAR(static_cast<double>(run(0.01, 0.001)), 50, 1);
  // Checks of 10 ms: 200 steps take 2 s, half a percent of which they are.
  for (int i = 0; i < 8; ++i) run(0.01, 0.01);
  EXPECT_NEAR(static_cast<double>(steps), 200, 4);
  // Steps of a second: each one is compared, where that is cheap enough.
  for (int i = 0; i < 8; ++i) run(1, 0.001);
  EXPECT_EQ(steps, 1);
  // A large state: a check as long as a step every 200 steps.
  for (int i = 0; i < 12; ++i) run(1, 1);
  EXPECT_NEAR(static_cast<double>(steps), 200, 4);
  // An evaluation among the steps of one interval makes them seem longer, and changes nothing.
  run(5, 1);
  EXPECT_NEAR(static_cast<double>(steps), 200, 4);
}

// Intervals grew without end, and then over the end of int64.
TEST_F(ReplicaCheckTest, AClockThatStandsStillLeavesIntervalsFinite) {
  Start({.data = 2});
  StepClock clock;
  options_.every = 0;
  options_.clock = &clock;
  ReplicaCheck check(job_, 0, options_);
  int64_t step = 0;
  for (int i = 0; i < 40; ++i) {
    step = check.NextCall(step);
    ASSERT_TRUE(check.Call(*coordinator_, step).ok());
  }
  EXPECT_EQ(check.NextCall(step) - step, 1'000'000);
}

}  // namespace
}  // namespace weft
