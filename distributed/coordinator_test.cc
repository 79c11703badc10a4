#include "distributed/coordinator.h"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/interfaces/wait_info.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// Answers RunSteps with what the test says; remembers whether it was aborted.
class ScriptedClient final : public WorkerClient {
 public:
  explicit ScriptedClient(int rank) : rank_(rank) {}
  std::string name() const override { return absl::StrCat("worker:", rank_, " (scripted)"); }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override {
    joined_as = membership.rank;
    memory_limit = membership.memory_limit_bytes;
    device = membership.device;
    job_id = membership.job_id;
    addresses = membership.addresses;
    WorkerInfo info;
    info.memory_limit = {membership.memory_limit_bytes, "the test"};
    return info;
  }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string&, const Partition&,
                                               const std::string&) override {
    MemoryRequirement requirement;
    requirement.arena_bytes = 1000 + rank_;
    return requirement;
  }
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override {
    variables[name] = local;
    return absl::OkStatus();
  }
  absl::StatusOr<Tensor> ReadVariable(const std::string& name) override { return variables[name]; }
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report) override {
    wanted_reports = report != nullptr;
    for (const StepRange& range : ranges) {
      wanted_values = !range.times_only;
      StepReport done;
      done.step = range.first_step;
      done.waited_seconds = rank_;
      if (report != nullptr) report(done);
    }
    return result;
  }
  // Nothing else is asked.
  absl::StatusOr<ControlReply> Answer(const ControlRequest&) override {
    if (!result.ok()) return result;
    return WorkerTraffic{{}, 96 * rank_};
  }
  void Abort(const absl::Status&) override { ++aborts; }

  RankId joined_as;
  int64_t memory_limit = -1;
  uint64_t job_id = 0;
  std::vector<std::string> addresses;
  std::string device;
  std::map<std::string, Tensor> variables;
  absl::Status result;
  bool wanted_reports = false;
  bool wanted_values = false;
  std::atomic<int> aborts{0};

 private:
  const int rank_;
};

class CoordinatorTest : public ::testing::Test {
 protected:
  explicit CoordinatorTest(int workers = 3) {
    for (int i = 0; i < workers; ++i) clients_.push_back(std::make_unique<ScriptedClient>(i));
  }
  std::vector<WorkerClient*> clients() {
    std::vector<WorkerClient*> pointers;
    for (const auto& client : clients_) pointers.push_back(client.get());
    return pointers;
  }
  absl::Status RunSteps() {
    return Coordinator(clients()).RunSteps({}, [](const StepReport&) {});
  }
  std::vector<std::unique_ptr<ScriptedClient>> clients_;
};

TEST_F(CoordinatorTest, TellsEachWorkerItsRank) {
  Coordinator coordinator(clients());
  ASSERT_TRUE(coordinator.Join(JobMembership{}).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(clients_[i]->joined_as, RankId(i));
}

TEST_F(CoordinatorTest, TellsEachWorkerItsLimitAndKeepsWhatItNeeds) {
  Coordinator coordinator(clients());
  ASSERT_TRUE(coordinator.Join(JobMembership{}, {10, 20, 30}).ok());
  std::vector<Partition> partitions(3);
  ASSERT_TRUE(coordinator.AddProgram("p", partitions, "").ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(clients_[i]->memory_limit, 10 * (i + 1));
    EXPECT_EQ(coordinator.memory()[i].worker, absl::StrCat("worker:", i));
    EXPECT_EQ(coordinator.memory()[i].limit.bytes, 10 * (i + 1));
    EXPECT_EQ(coordinator.memory()[i].requirement.arena_bytes, 1000 + i);
  }
}

TEST_F(CoordinatorTest, TellsEachWorkerTheDeviceThatItIsTakenFor) {
  Coordinator coordinator(clients());
  ASSERT_TRUE(coordinator.Join(JobMembership{}, {}, {"cuda:0", "", "cpu:0"}).ok());
  EXPECT_EQ(clients_[0]->device, "cuda:0");
  EXPECT_EQ(clients_[1]->device, "");
  EXPECT_EQ(clients_[2]->device, "cpu:0");
}

// In a job of its own, so that nobody of the job's hears of it.
TEST_F(CoordinatorTest, ANewcomerIsLookedAtAlone) {
  Coordinator coordinator(clients());
  JobMembership membership;
  membership.job_id = 5;
  membership.addresses = {"unix:/a", "unix:/b", "unix:/c"};
  ASSERT_TRUE(coordinator.Join(membership).ok());
  ScriptedClient newcomer(3);
  JobMember member = {&newcomer, "unix:/d"};
  member.device = "cuda:1";
  EXPECT_TRUE(coordinator.CheckNewcomer(member).ok());
  EXPECT_EQ(newcomer.joined_as, RankId(0));
  EXPECT_EQ(newcomer.addresses, std::vector<std::string>{"unix:/d"});
  EXPECT_EQ(newcomer.device, "cuda:1");
  EXPECT_NE(newcomer.job_id, 5u);
  EXPECT_EQ(coordinator.size(), 3);
  EXPECT_EQ(clients_[0]->job_id, 5u);
}

TEST_F(CoordinatorTest, OnlyRankZeroReports) {
  ASSERT_TRUE(RunSteps().ok());
  EXPECT_TRUE(clients_[0]->wanted_reports);
  EXPECT_FALSE(clients_[1]->wanted_reports);
}

TEST_F(CoordinatorTest, WhoObservesHearsOfAllRanksAndOfValuesFromRankZeroAlone) {
  std::array<std::atomic<int>, 3> observed = {};
  std::vector<int64_t> reported;
  const absl::Status status = Coordinator(clients()).RunSteps(
      {{"train", 4, 1, {}}, {"train", 5, 1, {}}},
      [&](const StepReport& report) {
        EXPECT_EQ(observed[0], static_cast<int>(reported.size()) + 1);
        reported.push_back(report.step);
      },
      [&](int rank, const StepReport& report) {
        EXPECT_EQ(report.waited_seconds, rank);
        EXPECT_EQ(report.step, 4 + observed[rank]++);
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(reported, (std::vector<int64_t>{4, 5}));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(observed[rank], 2);
    EXPECT_EQ(clients_[rank]->wanted_values, rank == 0);
  }
}

TEST_F(CoordinatorTest, AnErrorAbortsAllWorkersOnceAndNamesTheWorker) {
  clients_[1]->result = absl::InvalidArgumentError("loss is nan");
  const absl::Status status = RunSteps();
  EXPECT_EQ(status, absl::InvalidArgumentError("worker:1 (scripted): loss is nan"));
  for (const auto& client : clients_) EXPECT_EQ(client->aborts, 1);
}

TEST_F(CoordinatorTest, TheCauseBeatsItsConsequences) {
  clients_[0]->result = absl::AbortedError("the job was aborted");
  clients_[1]->result = absl::UnavailableError("lost rank 2");
  clients_[2]->result = absl::OutOfRangeError("loss is nan");
  EXPECT_EQ(RunSteps().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(CoordinatorTest, ALostPeerBeatsAborts) {
  clients_[0]->result = absl::AbortedError("the job was aborted");
  clients_[1]->result = absl::AbortedError("the job was aborted");
  clients_[2]->result = absl::UnavailableError("lost rank 1");
  const absl::Status status = RunSteps();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker:2"));
}

TEST_F(CoordinatorTest, TheExplanationIsAskedForLast) {
  clients_[1]->result = absl::UnavailableError("connection broke");
  Coordinator coordinator(clients(), [](const absl::Status& error) {
    return absl::UnavailableError(absl::StrCat("killed by signal 9; ", error.message()));
  });
  EXPECT_EQ(coordinator.RunSteps({}, nullptr),
            absl::UnavailableError("killed by signal 9; worker:1 (scripted): connection broke"));
}

absl::Status AbortedWaiting(const WaitInfo& note) {
  return WithWaitInfo(absl::AbortedError("the job was aborted"), note);
}

TEST_F(CoordinatorTest, ALostPeerIsFollowedByWhatEachWorkerWaitedFor) {
  clients_[0]->result = AbortedWaiting({"tensor 'h'", "node 'receive/h', step 3", "from worker:1"});
  clients_[1]->result = absl::UnavailableError("connection broke");
  clients_[2]->result = AbortedWaiting({"tensor 'g'", "", "from worker:0"});
  EXPECT_EQ(RunSteps(), absl::UnavailableError(
                            "worker:1 (scripted): connection broke; worker:0 was waiting for "
                            "tensor 'h' (node 'receive/h', step 3) from worker:1; worker:2 "
                            "was waiting for tensor 'g' from worker:0"));
}

TEST_F(CoordinatorTest, ACauseOfItsOwnNeedsNoWaits) {
  clients_[0]->result = AbortedWaiting({"tensor 'h'", "", "from worker:1"});
  clients_[1]->result = absl::OutOfRangeError("loss is nan");
  EXPECT_EQ(RunSteps(), absl::OutOfRangeError("worker:1 (scripted): loss is nan"));
}

TEST_F(CoordinatorTest, ReadsTheTrafficOfAllWorkers) {
  const auto traffic = Coordinator(clients()).AskAll(TrafficRequest{});
  ASSERT_TRUE(traffic.ok()) << traffic.status();
  ASSERT_EQ(traffic->size(), 3u);
  EXPECT_EQ(traffic->at(2).header_bytes, 192);
}

TEST_F(CoordinatorTest, AQuestionThatOneWorkerCannotAnswerEndsTheJob) {
  clients_[1]->result = absl::UnavailableError("lost");
  const auto traffic = Coordinator(clients()).AskAll(TrafficRequest{});
  EXPECT_EQ(traffic.status(), absl::UnavailableError("worker:1 (scripted): lost"));
  for (const auto& client : clients_) EXPECT_EQ(client->aborts, 1);
}

TEST_F(CoordinatorTest, AnAnswerToAnotherQuestionIsDamage) {
  const absl::Status status = Coordinator(clients()).AskAll(MemoryRequest{}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has answered another question"));
}

TEST_F(CoordinatorTest, CutsVariablesIntoShardsAndPutsThemTogether) {
  Coordinator coordinator(clients());
  ASSERT_TRUE(coordinator.Join(JobMembership{}).ok());
  std::vector<Partition> partitions(3);
  for (int i = 0; i < 3; ++i) {
    VariableShard shard;
    shard.name = "w";
    shard.dtype = DType::kFloat32;
    shard.global_shape = Shape{5};
    shard.tensor_sharding = AxisSharding::Split(0);
    shard.tensor_shards = 3;
    shard.tensor_index = i;
    shard.local_shape = shard.tensor_sharding.LocalShape(shard.global_shape, 3, i);
    shard.is_primary = true;
    partitions[i].variables = {shard};
  }
  ASSERT_TRUE(coordinator.AddProgram("train", partitions, "").ok());
  const Tensor w = Tensor::Of(Shape{5}, std::vector<float>{1, 2, 3, 4, 5});
  ASSERT_TRUE(coordinator.WriteVariables({{"w", w}}).ok());
  EXPECT_TRUE(
      BitwiseEqual(clients_[2]->variables["w"], Tensor::Of(Shape{1}, std::vector<float>{5})));
  EXPECT_TRUE(BitwiseEqual(coordinator.ReadVariables({"w"})->at("w"), w));
  EXPECT_EQ(coordinator.ReadVariables({"v"}).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace weft
