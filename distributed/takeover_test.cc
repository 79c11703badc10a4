// A coordinator is lost, and another one goes on with its job from the memory of the workers: no
// step is lost or repeated, and of two coordinators the later one has the workers.
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "distributed/coordinator.h"
#include "distributed/coordinator_epoch.h"
#include "distributed/grpc/grpc_client.h"
#include "distributed/process/local_cluster.h"
#include "distributed/settle_step.h"
#include "distributed/testing/sum_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/process.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kWorkers = 2;
// Two workers sum 2 and 4, and the rate is 0.5.
constexpr float kPerStep = 3;

absl::Time In(int seconds) { return absl::Now() + absl::Seconds(seconds); }
std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Workers that are started by hand, and a coordinator in a process of its own that drives them.
class TakeoverTest : public ::testing::Test {
 protected:
  TakeoverTest() {
    folder_ = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~TakeoverTest() override {
    cluster_.reset();
    coordinator_.reset();
    workers_.clear();
    unsetenv("WEFT_TEST_KEEP");
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // A job in runs of so many steps, on workers that keep what they have for so many seconds.
  void StartJob(int64_t steps, int keep_seconds, const std::string& kind = "--resumable") {
    setenv("WEFT_TEST_KEEP", absl::StrCat(keep_seconds).c_str(), 1);
    for (int i = 0; i < kWorkers; ++i) {
      addresses_.push_back(absl::StrCat("unix:", folder_, "/", i));
      ProcessOptions worker;
      worker.arguments = {"distributed/testing/worker_main", "worker", "--listen",
                          addresses_.back()};
      auto started = RealProcessLauncher().Start(worker);
      ASSERT_TRUE(started.ok()) << started.status();
      workers_.push_back(*std::move(started));
    }
    ProcessOptions coordinator;
    coordinator.arguments = {"distributed/testing/coordinator_main", kind, absl::StrCat(steps)};
    coordinator.arguments.insert(coordinator.arguments.end(), addresses_.begin(), addresses_.end());
    coordinator.standard_output.kind = ProcessOutput::Kind::kPipe;
    auto started = RealProcessLauncher().Start(coordinator);
    ASSERT_TRUE(started.ok()) << started.status();
    coordinator_ = *std::move(started);
    EXPECT_EQ(NextLine(), "running");
  }
  std::string NextLine() {
    const auto line = coordinator_->ReadLine(In(60));
    EXPECT_TRUE(line.ok()) << line.status();
    return line.value_or("");
  }
  // So many runs are over.
  int64_t AwaitRuns(int runs) {
    int64_t steps = 0;
    for (int run = 0; run < runs; ++run) {
      const std::string line = NextLine();
      EXPECT_THAT(line, StartsWith("ran "));
      EXPECT_TRUE(absl::SimpleAtoi(line.substr(4), &steps)) << line;
    }
    return steps;
  }
  void Kill() {
    ASSERT_TRUE(coordinator_->Signal(SIGKILL).ok());
    ASSERT_TRUE(coordinator_->WaitUntil(In(5)).has_value());
  }

  absl::Status Connect() {
    RemoteClusterOptions options;
    options.addresses = addresses_;
    options.token = testing::kTestToken;
    options.attended_patience = kAttendedPatience;
    auto cluster = ConnectToCluster(options);
    if (cluster.ok()) cluster_ = *std::move(cluster);
    return cluster.status();
  }
  std::vector<KeptJob> Kept() {
    std::vector<KeptJob> kept;
    for (WorkerClient* const client : cluster_->clients()) {
      auto answer = client->Ask(KeptJobRequest{});
      EXPECT_TRUE(answer.ok()) << answer.status();
      kept.push_back(answer.value_or(KeptJob()));
    }
    return kept;
  }
  static int64_t StepsOf(const KeptJob& kept) {
    const auto step = kept.note.find(testing::kSumJobStep);
    EXPECT_NE(step, kept.note.end());
    return step == kept.note.end() ? -1 : static_cast<int64_t>(step->second) + kept.steps;
  }
  // The steps that the workers stand after, once they have settled what was under way.
  int64_t Settle() {
    int64_t runs = 0;
    for (const KeptJob& kept : Kept()) {
      EXPECT_EQ(kept.job_id, 4711u);
      EXPECT_EQ(kept.job_digest, testing::kSumJobDigest);
      runs = std::max(runs, kept.runs);
    }
    const auto settled = SettleStep(cluster_->clients(), runs, 0);
    EXPECT_TRUE(settled.ok()) << settled.status();
    const std::vector<KeptJob> kept = Kept();
    EXPECT_EQ(StepsOf(kept[0]), StepsOf(kept[1]));
    EXPECT_EQ(kept[0].shards_digest, kept[1].shards_digest);
    return StepsOf(kept[0]);
  }
  JobMembership Membership(uint64_t job_id, uint64_t digest, uint64_t continues = 0) const {
    JobMembership membership;
    membership.job_id = job_id;
    membership.addresses = addresses_;
    membership.version = "test";
    membership.commits = true;
    membership.job_digest = digest;
    membership.continues_job_id = continues;
    return membership;
  }
  // The first weight after `more` steps, of a job that goes on after `done`.
  float GoOn(Coordinator& coordinator, int64_t done, int64_t more) {
    EXPECT_TRUE(coordinator.Join(Membership(4712, testing::kSumJobDigest, 4711)).ok());
    EXPECT_TRUE(coordinator.AddProgram("train", testing::CommittingSumJob(kWorkers), "data").ok());
    EXPECT_TRUE(coordinator.RunSteps({{"train", done, more, {{"rate", 0.5}}}}, nullptr).ok());
    const auto weights = coordinator.ReadVariables({"w"});
    EXPECT_TRUE(weights.ok()) << weights.status();
    return weights.ok() ? weights->at("w").data<float>()[0] : 0;
  }

  std::string folder_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::unique_ptr<Process> coordinator_;
  std::unique_ptr<WorkerCluster> cluster_;
};

// In runs of one step the loss is mostly between two of them, in long ones within a step.
TEST_F(TakeoverTest, NoStepIsLostOrRepeated) {
  for (const int64_t steps : {1, 20, 100000}) {
    StartJob(steps, 60);
    const int64_t told = steps < 1000 ? AwaitRuns(static_cast<int>(40 / steps)) : 0;
    Kill();
    const absl::Time begin = absl::Now();
    const absl::Status connected = Connect();
    ASSERT_TRUE(connected.ok()) << connected;
    const int64_t done = Settle();
    EXPECT_GE(done, told);
    EXPECT_GT(done, 0);
    Coordinator coordinator(cluster_->clients());
    EXPECT_EQ(GoOn(coordinator, done, 5), -kPerStep * static_cast<float>(done + 5));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
    EXPECT_EQ(coordinator.epoch(), 2u);
    cluster_.reset();
    workers_.clear();
    addresses_.clear();
  }
}

// They could not tell this loss from one in which the job had gone on without them, and ended.
TEST_F(TakeoverTest, WorkersThatWereStoppedMeanwhileKeepWhatTheyHave) {
  StartJob(20, 60);
  const int64_t told = AwaitRuns(1);
  for (const auto& worker : workers_) ASSERT_TRUE(worker->Signal(SIGSTOP).ok());
  absl::SleepFor(absl::Milliseconds(1200));  // less than the coordinator gives them up for
  Kill();
  for (const auto& worker : workers_) ASSERT_TRUE(worker->Signal(SIGCONT).ok());
  absl::SleepFor(absl::Seconds(1));  // they see the pause, and that the coordinator is gone
  const absl::Status connected = Connect();
  ASSERT_TRUE(connected.ok()) << connected;
  const int64_t done = Settle();
  EXPECT_GE(done, told);
  Coordinator coordinator(cluster_->clients());
  EXPECT_EQ(GoOn(coordinator, done, 5), -kPerStep * static_cast<float>(done + 5));
}

// A worker that was slow for a moment took any end of a job for the end of its part in it.
TEST_F(TakeoverTest, AJobThatEndsAfterAPauseEndsNoWorker) {
  StartJob(20, 0);
  Kill();
  ASSERT_TRUE(Connect().ok());
  ASSERT_TRUE(Coordinator(cluster_->clients()).Join(Membership(9, /*digest=*/0)).ok());
  for (const auto& worker : workers_) ASSERT_TRUE(worker->Signal(SIGSTOP).ok());
  absl::SleepFor(absl::Milliseconds(1200));
  for (const auto& worker : workers_) ASSERT_TRUE(worker->Signal(SIGCONT).ok());
  cluster_.reset();  // says goodbye
  absl::SleepFor(absl::Seconds(1));
  for (const auto& worker : workers_) EXPECT_FALSE(worker->Poll().has_value());
  const absl::Status connected = Connect();
  EXPECT_TRUE(connected.ok()) << connected;
}

// An abort would leave some variables changed and others not.
TEST_F(TakeoverTest, StepsThatNobodyAgreesOnComeToTheEndOfTheirStretch) {
  constexpr int64_t kStretch = 500;
  StartJob(kStretch, 60, "--uncommitted");
  Kill();
  const absl::Status connected = Connect();
  ASSERT_TRUE(connected.ok()) << connected;
  const int64_t done = Settle();
  EXPECT_EQ(done % kStretch, 0);
  EXPECT_GE(done, kStretch);
  Coordinator coordinator(cluster_->clients());
  EXPECT_EQ(GoOn(coordinator, done, 5), -kPerStep * static_cast<float>(done + 5));
}

TEST_F(TakeoverTest, WhatIsKeptIsForTheSameJobUntilItsTimeIsOver) {
  StartJob(20, 4);
  AwaitRuns(2);
  Kill();
  ASSERT_TRUE(Connect().ok());
  const absl::Status refused =
      Coordinator(cluster_->clients()).Join(Membership(9, /*digest=*/5)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(Text(refused),
              AllOf(HasSubstr("keeps the state of another job"),
                    HasSubstr("coordinator (epoch 1) was lost"), HasSubstr("train --resume")));
  EXPECT_EQ(Kept()[0].job_id, 4711u);  // it is still there
  absl::Status taken = refused;
  const absl::Time deadline = In(30);
  for (uint64_t job = 10; !taken.ok() && absl::Now() < deadline; ++job) {
    cluster_.reset();
    ASSERT_TRUE(Connect().ok());
    taken = Coordinator(cluster_->clients()).Join(Membership(job, 5)).status();
  }
  EXPECT_TRUE(taken.ok()) << taken;
  for (const KeptJob& kept : Kept()) EXPECT_EQ(kept.job_id, 0u);
}

TEST_F(TakeoverTest, ACoordinatorThatEndsLeavesNothing) {
  StartJob(20, 60);
  AwaitRuns(1);
  Kill();
  ASSERT_TRUE(Connect().ok());
  {
    Coordinator coordinator(cluster_->clients());
    GoOn(coordinator, Settle(), 1);
  }
  cluster_.reset();  // says goodbye
  ASSERT_TRUE(Connect().ok());
  for (const KeptJob& kept : Kept()) EXPECT_EQ(kept.job_id, 0u);
  EXPECT_TRUE(Coordinator(cluster_->clients()).Join(Membership(9, 5)).ok());
}

TEST_F(TakeoverTest, OneThatHasTakenTheJobAndRunNothingLeavesItToTheNext) {
  StartJob(20, 60);
  AwaitRuns(1);
  Kill();
  ASSERT_TRUE(Connect().ok());
  const int64_t done = Settle();
  {
    Coordinator coordinator(cluster_->clients());
    ASSERT_TRUE(coordinator.Join(Membership(4712, testing::kSumJobDigest, 4711)).ok());
  }
  cluster_.reset();
  ASSERT_TRUE(Connect().ok());
  for (const KeptJob& kept : Kept()) {
    EXPECT_EQ(kept.job_id, 4711u);
    EXPECT_EQ(kept.runs, 0);
    EXPECT_EQ(StepsOf(kept), done);
  }
  Coordinator coordinator(cluster_->clients());
  EXPECT_TRUE(coordinator.Join(Membership(4714, testing::kSumJobDigest, 4711)).ok());
  EXPECT_EQ(coordinator.epoch(), 3u);
}

TEST_F(TakeoverTest, ASecondCoordinatorIsRefusedWithBothEpochs) {
  StartJob(20, 60);
  AwaitRuns(1);
  GrpcClientOptions options;
  options.address = addresses_[0];
  options.rank = RankId(0);
  options.connect_deadline = In(10);
  options.token = testing::kTestToken;
  const absl::Status status = ConnectToWorker(options).status();
  EXPECT_TRUE(IsAttendedByAnother(status)) << status;
  EXPECT_THAT(Text(status), AllOf(HasSubstr(", epoch 1)"), HasSubstr("one of epoch 2 is refused")));
  AwaitRuns(1);  // the first goes on
}

TEST_F(TakeoverTest, AStoppedCoordinatorThatComesBackEndsItself) {
  StartJob(20, 60);
  AwaitRuns(1);
  ASSERT_TRUE(coordinator_->Signal(SIGSTOP).ok());
  const absl::Status connected = Connect();  // once the workers have given it up
  ASSERT_TRUE(connected.ok()) << connected;
  const int64_t done = Settle();
  Coordinator coordinator(cluster_->clients());
  EXPECT_EQ(GoOn(coordinator, done, 5), -kPerStep * static_cast<float>(done + 5));
  // A call of the lower epoch, whoever makes it.
  GrpcClientOptions options;
  options.address = addresses_[0];
  options.rank = RankId(0);
  options.connect_deadline = In(10);
  options.token = testing::kTestToken;
  options.epoch = 1;
  const absl::Status stale = ConnectToWorker(options).status();
  EXPECT_TRUE(IsDeposed(stale)) << stale;
  EXPECT_THAT(Text(stale), AllOf(HasSubstr("its epoch is 1"), HasSubstr("of epoch 2")));
  ASSERT_TRUE(coordinator_->Signal(SIGCONT).ok());
  std::string line = NextLine();
  while (absl::StartsWith(line, "ran ")) line = NextLine();  // of before
  EXPECT_THAT(line, AllOf(StartsWith("ended: "), HasSubstr("this coordinator has a successor"),
                          HasSubstr("its epoch is 1"), HasSubstr("of epoch 2")));
  EXPECT_EQ(coordinator_->WaitUntil(In(10)), ExitStatus{.code = 1});
  // The later one has not noticed.
  EXPECT_TRUE(coordinator.RunSteps({{"train", done + 5, 2, {{"rate", 0.5}}}}, nullptr).ok());
  const auto weights = coordinator.ReadVariables({"w"});
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->at("w").data<float>()[0], -kPerStep * static_cast<float>(done + 7));
}

}  // namespace
}  // namespace weft
