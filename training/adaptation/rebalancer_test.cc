// Jobs on workers of this process whose times are told by the test: what is said, what is moved,
// and that the weights are those of an undisturbed run.
#include "training/adaptation/rebalancer.h"

#include <algorithm>
#include <functional>
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
#include "platform/testing/fake_clock.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int64_t kSamples = 40;
constexpr int64_t kBatch = 16;  // the last one of an epoch has 8
constexpr int64_t kSteps = 300;
constexpr char kVersion[] = "test";

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// scores [N,3] = tanh(x [N,4] w [4,6]) v [6,3].
Graph Model() {
  Graph graph;
  const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), 4}));
  const ValueId w =
      graph.AddVariable("w", FloatType({4, 6}), testing::RandomTensor({4, 6}, 1), true);
  const ValueId v =
      graph.AddVariable("v", FloatType({6, 3}), testing::RandomTensor({6, 3}, 2), true);
  GraphBuilder builder(graph);
  const ValueId hidden = builder.Op("Tanh", {builder.Op("MatMul", {x, w})});
  graph.AddOutput(builder.Op("MatMul", {hidden, v}));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return graph;
}

// A rebalancer that is told other times than those that were measured.
class ScriptedTimes final : public StepWatch {
 public:
  // `seconds(rank, step)`: of one micro-batch.
  // The clock goes as long as rank 0 says that it took.
  ScriptedTimes(Rebalancer& rebalancer, testing::FakeClock& clock,
                std::function<double(int, int64_t)> seconds)
      : rebalancer_(rebalancer), clock_(clock), seconds_(std::move(seconds)) {}
  void Observe(int rank, const StepReport& report) override {
    EXPECT_GE(report.seconds, report.waited_seconds + report.update_seconds);
    EXPECT_EQ(report.values.empty(), rank != 0);
    const Plan& plan = rebalancer_.plan();
    const int replica = plan.mesh.CoordinateOf(RankId(rank)).data;
    const int count = plan.FirstMicroBatch(replica + 1, plan.micro_batches) -
                      plan.FirstMicroBatch(replica, plan.micro_batches);
    StepReport told;
    told.step = report.step;
    told.update_seconds = 0.001;
    told.waited_seconds = 0.5;
    told.seconds = 0.501 + count * seconds_(rank, report.step);
    if (rank == 0) clock_.Advance(absl::Seconds(told.seconds));
    rebalancer_.Observe(rank, told);
  }
  absl::StatusOr<std::string> ChooseProgram(Coordinator& coordinator, int64_t step) override {
    auto kind = rebalancer_.ChooseProgram(coordinator, step);
    if (kind.ok() && (kinds_.empty() || kinds_.back() != *kind)) kinds_.push_back(*kind);
    return kind;
  }
  void MembersChanged() override { rebalancer_.MembersChanged(); }
  const std::vector<std::string>& kinds() const { return kinds_; }

 private:
  Rebalancer& rebalancer_;
  testing::FakeClock& clock_;
  const std::function<double(int, int64_t)> seconds_;
  std::vector<std::string> kinds_;
};

// Ends stretches early, which last half a second otherwise.
class EveryTenSteps final : public LoopHook {
 public:
  int64_t NextCall(int64_t step) const override { return (step / 10 + 1) * 10; }
  absl::StatusOr<std::string> Call(Coordinator&, int64_t) override { return std::string(); }
};

// Has the job go on without its last rank at the tenth step boundary.
class LeavesOneOut final : public LossHandler {
 public:
  using Repartition = std::function<std::vector<JobProgram>(const Plan& plan)>;
  LeavesOneOut(PreparedJob& job, Repartition repartition)
      : job_(job), repartition_(std::move(repartition)) {}
  absl::StatusOr<WentOn> GoOn(Coordinator&, const absl::Status& loss, int64_t, int64_t) override {
    return loss;
  }
  bool wants_change(const Coordinator&) override { return ++boundaries_ == 10; }
  absl::StatusOr<bool> ChangeMembers(Coordinator& coordinator, int64_t) override {
    --job_.plan.mesh.data;
    job_.plan.workers.clear();
    job_.programs = repartition_(job_.plan);
    std::vector<JobMember> members = coordinator.members();
    members.pop_back();
    absl::Status status = coordinator.GoOnAs(members);
    if (status.ok()) status = AddPrograms(coordinator, job_, nullptr);
    if (!status.ok()) return status;
    return true;
  }

 private:
  PreparedJob& job_;
  const Repartition repartition_;
  int boundaries_ = 0;
};

// On each device of tensor/testing/test_device.h.
class RebalancerTest : public ::testing::TestWithParam<int> {
 protected:
  RebalancerTest() {
    plan_.mesh.data = 2;
    plan_.micro_batches = 8;
    Write("x", testing::RandomTensor({kSamples, 4}, 3));
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSamples; ++i) labels.push_back(i * 7 % 3);
    Write("labels", Tensor::Of<int64_t>({kSamples}, labels));
    data_spec_.batch = kBatch;
    data_spec_.shuffle = true;
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  // Trained with a worker 1 of these times per micro-batch, or without a watch.
  TrainResult Train(const std::function<double(int, int64_t)>& seconds) {
    const int workers = plan_.mesh.size();
    JobSpec spec;
    spec.cluster = ClusterSpec::Local(workers, 1);
    spec.plan = plan_;
    TrainingSpec training;
    training.optimizer.kind = "adam";
    training.optimizer.learning_rate = 0.01;
    job_ = PrepareTraining(Model(), training, spec, *DataSet::Open(files_, data_spec_)).value();
    testing::DeviceCluster cluster(GetParam(), workers, NewDataSetFactory(files_), kVersion);
    Coordinator coordinator(cluster.clients());
    const absl::Status started = StartJob(coordinator, job_, spec, kVersion, {});
    EXPECT_TRUE(started.ok()) << started;
    const Graph model = Model();
    testing::FakeClock clock;
    RebalancerOptions options;
    options.clock = &clock;
    options.moves = moves_;
    options.say = [this](const std::string& line) { lines_.push_back(line); };
    options.on_plan = [this](const Plan& plan) { plans_.push_back(plan.shares); };
    Rebalancer rebalancer(
        job_, coordinator,
        [&](const Plan& plan, const std::string& kind) {
          return PartitionTraining(job_, model, training, plan, kind);
        },
        options);
    ScriptedTimes times(rebalancer, clock, seconds);
    TrainOptions train;
    train.steps = kSteps;
    if (seconds != nullptr) train.watch = &times;
    EveryTenSteps boundaries;
    train.hooks = {&boundaries};
    LeavesOneOut losses(job_, [&](const Plan& plan) {
      return PartitionTraining(job_, model, training, plan, kTrainingSteps).value();
    });
    if (loses_one_) train.losses = &losses;
    int64_t step = 0;
    auto result = weft::Train(coordinator, job_, train, [&](const TrainProgress& progress) {
      EXPECT_EQ(progress.step, step++);
      programs_.insert(progress.program);
    });
    EXPECT_TRUE(result.ok()) << result.status();
    rebalancer.Finish();
    kinds_ = times.kinds();
    traffic_ = coordinator.AskAll(TrafficRequest{}).value();
    return *std::move(result);
  }

  static double Equal(int, int64_t) { return 0.020; }
  // Worker 1 takes three times as long from step 20 to 150.
  static double ForAWhile(int rank, int64_t step) {
    return rank == 1 && step >= 20 && step < 150 ? 0.060 : 0.020;
  }
  static double ForEver(int rank, int64_t step) {
    return ForAWhile(rank, std::min(step, int64_t{100}));
  }

  testing::FakeFileSystem files_;
  DataSpec data_spec_;
  Plan plan_;
  bool moves_ = true;
  bool loses_one_ = false;
  PreparedJob job_;
  std::vector<std::string> lines_;
  std::vector<std::vector<int>> plans_;
  std::vector<std::string> kinds_;
  std::set<std::string> programs_;
  std::vector<WorkerTraffic> traffic_;
};

INSTANTIATE_TEST_SUITE_P(Devices, RebalancerTest, ::testing::Values(-1, 1), testing::JobDeviceName);

TEST_P(RebalancerTest, ASlowWorkerGetsFewerMicroBatchesAndNoBitChanges) {
  plan_.strict = true;
  const TrainResult undisturbed = Train(nullptr);
  const TrainResult disturbed = Train(ForEver);
  EXPECT_THAT(kinds_, ElementsAre("train", "train@6:2"));
  EXPECT_THAT(plans_, ElementsAre(ElementsAre(6, 2)));
  ASSERT_THAT(lines_, SizeIs(3));
  EXPECT_THAT(lines_[2], HasSubstr("worker:1 (in this process) in all: slower than usual 1 time"));
  EXPECT_THAT(lines_[0], AllOf(HasSubstr("slow   worker:1 (in this process) works 3.0 times slower "
                                         "than before, since step 21, seen after step 23"),
                               HasSubstr("241 ms of each step instead of 81 ms"),
                               Not(HasSubstr("--rebalance"))));
  EXPECT_THAT(lines_[1],
              AllOf(HasSubstr("moved  micro-batches 6:2 instead of 4:4 from step "),
                    HasSubstr("about 121 ms of work instead of 241 ms"), Not(HasSubstr("round"))));
  EXPECT_THAT(programs_, ElementsAre("train/16", "train/8", "train@6:2/16", "train@6:2/8"));
  for (const auto& [name, value] : undisturbed.parameters) {
    EXPECT_TRUE(BitwiseEqual(disturbed.parameters.at(name), value)) << name;
  }
  // What was sent is told by the job's programs.
  for (const WorkerTraffic& worker : traffic_) {
    EXPECT_EQ(worker.programs.size(), 4u);
    EXPECT_EQ(job_.programs.size(), 4u);
  }
}

TEST_P(RebalancerTest, WhenItRecoversTheFirstProgramsRunAgain) {
  plan_.strict = true;
  const TrainResult undisturbed = Train(nullptr);
  const TrainResult disturbed = Train(ForAWhile);
  EXPECT_THAT(kinds_, ElementsAre("train", "train@6:2", "train"));
  ASSERT_THAT(lines_, SizeIs(5));
  EXPECT_THAT(lines_[2], HasSubstr("works as fast as before again, since step 151"));
  EXPECT_THAT(lines_[3], HasSubstr("micro-batches 4:4 instead of 6:2"));
  for (const auto& [name, value] : undisturbed.parameters) {
    EXPECT_TRUE(BitwiseEqual(disturbed.parameters.at(name), value)) << name;
  }
}

// The third worker is lost after a hundred steps or so, and worker 1 becomes slow much later.
TEST_P(RebalancerTest, GoesOnWatchingWhenMembersHaveChanged) {
  plan_.strict = true;
  plan_.mesh.data = 3;
  const TrainResult undisturbed = Train(nullptr);
  loses_one_ = true;
  const TrainResult disturbed =
      Train([](int rank, int64_t step) { return rank == 1 && step >= 180 ? 0.060 : 0.020; });
  EXPECT_THAT(kinds_, ElementsAre("train", "train@6:2"));
  EXPECT_THAT(plans_, ElementsAre(ElementsAre(6, 2)));
  ASSERT_FALSE(lines_.empty());
  EXPECT_THAT(lines_[0], HasSubstr("works 3.0 times slower than before, since step 181"));
  for (const auto& [name, value] : undisturbed.parameters) {
    EXPECT_TRUE(BitwiseEqual(disturbed.parameters.at(name), value)) << name;
  }
}

TEST_P(RebalancerTest, StatesAndParametersStayWhereTheyAreSplit) {
  for (const int zero : {1, 2, 3}) {
    plan_.zero = zero;
    const TrainResult undisturbed = Train(nullptr);
    const TrainResult disturbed = Train(ForAWhile);
    EXPECT_THAT(kinds_, ElementsAre("train", "train@6:2", "train")) << zero;
    for (const auto& [name, value] : undisturbed.parameters) {
      const std::vector<double> expected = *ToDoubles(value);
      const std::vector<double> found = *ToDoubles(disturbed.parameters.at(name));
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(found[i], expected[i], 2e-3) << name << " zero=" << zero;
      }
    }
  }
}

// The slowest stage of a replica is what counts.
TEST_P(RebalancerTest, AStageMakesItsReplicaSlow) {
  plan_.strict = true;
  plan_.mesh.pipeline = 2;
  const TrainResult undisturbed = Train(nullptr);
  // Rank 3 is the second stage of the second replica.
  const TrainResult disturbed =
      Train([](int rank, int64_t step) { return ForEver(rank == 3 ? 1 : 0, step); });
  EXPECT_THAT(kinds_, ElementsAre("train", "train@6:2"));
  EXPECT_THAT(lines_[0], HasSubstr("worker:3"));
  for (const auto& [name, value] : undisturbed.parameters) {
    EXPECT_TRUE(BitwiseEqual(disturbed.parameters.at(name), value)) << name;
  }
}

TEST_P(RebalancerTest, WhoIsSlowFromTheBeginningIsRelieved) {
  Train([](int rank, int64_t) { return rank == 1 ? 0.060 : 0.020; });
  EXPECT_THAT(kinds_, ElementsAre("train", "train@6:2"));
  EXPECT_THAT(lines_[0], HasSubstr("works 3.0 times slower than the others on the same"));
}

TEST_P(RebalancerTest, EqualWorkersStayAsTheyAre) {
  Train(Equal);
  EXPECT_THAT(kinds_, ElementsAre("train"));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_P(RebalancerTest, WithoutTheFlagItSaysWhatTheFlagWouldDo) {
  moves_ = false;
  Train(ForEver);
  EXPECT_THAT(kinds_, ElementsAre("train"));
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[0],
              HasSubstr("; --rebalance would split the 8 micro-batches 6:2, and a step takes about "
                        "121 ms of work instead of 241 ms"));
}

TEST_P(RebalancerTest, ItSaysWhyNothingCanBeMoved) {
  plan_.micro_batches = 2;
  Train(ForEver);
  EXPECT_THAT(kinds_, ElementsAre("train"));
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[0],
              HasSubstr("each of the 2 replicas has one micro-batch; --micro-batches 8"));
  Plan pipeline;
  pipeline.mesh.pipeline = 2;
  EXPECT_THAT(Rebalancer::WhyNothingMoves(pipeline), HasSubstr("the plan has one replica, dp=1"));
  // It has the least that there is already.
  plan_.micro_batches = 4;
  plan_.shares = {3, 1};
  lines_.clear();
  Train([](int rank, int64_t step) { return rank == 0 ? 0.020 : step < 20 ? 0.060 : 0.120; });
  EXPECT_THAT(kinds_, ElementsAre("train"));
  EXPECT_THAT(lines_[0], HasSubstr("another split of the 4 micro-batches would be no faster"));
}

}  // namespace
}  // namespace weft
