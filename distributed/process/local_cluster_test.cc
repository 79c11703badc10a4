// Jobs on real worker processes, and what happens when one of them is lost.
#include "distributed/process/local_cluster.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/coordinator.h"
#include "distributed/grpc/grpc_client.h"
#include "distributed/grpc/grpc_server.h"
#include "distributed/job_token.h"
#include "distributed/testing/sum_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWorkerProgram[] = "distributed/testing/worker_main";
constexpr uint64_t kJobId = 77;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

bool IsAlive(int64_t process) { return kill(static_cast<pid_t>(process), 0) == 0; }

class LocalClusterTest : public ::testing::Test {
 protected:
  // What the launcher has given to the workers.
  std::string TokenOfTheCluster() const {
    const std::string socket = cluster_->addresses()[0].substr(5);  // "unix:"
    return ReadTokenFile(socket.substr(0, socket.rfind('/')) + "/token").value();
  }
  absl::Status Start(int workers, std::vector<std::string> command = {kWorkerProgram, "worker"},
                     absl::Duration timeout = absl::Seconds(60)) {
    LocalClusterOptions options;
    options.command = std::move(command);
    options.workers = workers;
    options.start_timeout = timeout;
    auto cluster = StartLocalCluster(RealProcessLauncher(), options);
    if (!cluster.ok()) return cluster.status();
    cluster_ = *std::move(cluster);
    coordinator_ = std::make_unique<Coordinator>(
        cluster_->clients(),
        [this](const absl::Status& error) { return cluster_->Explain(error); });
    return absl::OkStatus();
  }

  JobMembership Membership() {
    JobMembership membership;
    membership.job_id = kJobId;
    membership.addresses = cluster_->addresses();
    membership.version = "test";
    return membership;
  }

  void StartJob(int workers) {
    ASSERT_TRUE(Start(workers).ok());
    const auto infos = coordinator_->Join(Membership());
    ASSERT_TRUE(infos.ok()) << infos.status();
    for (const WorkerInfo& info : *infos) processes_.push_back(info.process_id);
    const auto added =
        coordinator_->AddProgram("train", testing::SumJobPartitions(workers), "data");
    ASSERT_TRUE(added.ok()) << added.status();
  }

  absl::Status RunSteps(int64_t count, const std::function<void(const StepReport&)>& report) {
    return coordinator_->RunSteps({{"train", 0, count, {{"rate", 0.5}}}}, report);
  }

  // Sends `signal` to `victim` once steps are under way.
  absl::Status RunUntilHit(int64_t victim, int signal) {
    bool sent = false;
    return RunSteps(int64_t{1} << 40, [&](const StepReport&) {
      if (sent) return;
      sent = true;
      hit_ = absl::Now();
      kill(static_cast<pid_t>(victim), signal);
    });
  }

  std::unique_ptr<WorkerCluster> cluster_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<int64_t> processes_;
  absl::Time hit_;
};

TEST_F(LocalClusterTest, RunsAJobOnTwoProcesses) {
  StartJob(2);
  std::vector<int64_t> steps;
  const absl::Status status = RunSteps(5, [&](const StepReport& report) {
    steps.push_back(report.step);
    EXPECT_EQ(report.values.at("loss").data<float>()[0], 6);
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  const auto values = coordinator_->ReadVariables({"w"});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_TRUE(
      BitwiseEqual(values->at("w"), Tensor::Of(Shape{1, 3}, std::vector<float>{-15, -30, -45})));
}

TEST_F(LocalClusterTest, ValuesAreWrittenToAllWorkers) {
  StartJob(2);
  const Tensor w = Tensor::Of(Shape{1, 3}, std::vector<float>{1, 2, 3});
  ASSERT_TRUE(coordinator_->WriteVariables({{"w", w}}).ok());
  EXPECT_TRUE(BitwiseEqual(coordinator_->ReadVariables({"w"})->at("w"), w));
}

TEST_F(LocalClusterTest, NoProcessIsLeftAtTheEnd) {
  StartJob(3);
  coordinator_.reset();
  cluster_.reset();
  for (const int64_t process : processes_) EXPECT_FALSE(IsAlive(process)) << process;
}

TEST_F(LocalClusterTest, AKilledWorkerEndsTheJobNamed) {
  StartJob(3);
  const absl::Status status = RunUntilHit(processes_[1], SIGKILL);
  EXPECT_LT(absl::Now() - hit_, absl::Seconds(3));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(Text(status), HasSubstr(absl::StrCat("worker:1 (pid ", processes_[1],
                                                   ") was killed by signal 9 (Killed)")));
  coordinator_.reset();
  cluster_.reset();
  for (const int64_t process : processes_) EXPECT_FALSE(IsAlive(process)) << process;
}

TEST_F(LocalClusterTest, AFrozenWorkerIsNoticed) {
  StartJob(2);
  const absl::Status status = RunUntilHit(processes_[1], SIGSTOP);
  // Keepalive: its interval, then its patience.
  EXPECT_LT(absl::Now() - hit_, absl::Seconds(5));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  // Whoever notices first says so: rank 0's stream to it, or the coordinator's call.
  EXPECT_THAT(Text(status), HasSubstr(absl::StrCat("worker:1 (pid ", processes_[1],
                                                   ") does not answer: a signal has stopped it")));
  EXPECT_THAT(Text(status), HasSubstr("; worker:0 was waiting for tensor '"));
  EXPECT_THAT(Text(status), HasSubstr("from worker:1"));
  coordinator_.reset();
  cluster_.reset();
  EXPECT_FALSE(IsAlive(processes_[1]));
}

// Nobody but the coordinator can notice it.
TEST_F(LocalClusterTest, AFrozenWorkerWithoutPeersIsNoticed) {
  StartJob(1);
  const absl::Status status = RunUntilHit(processes_[0], SIGSTOP);
  EXPECT_LT(absl::Now() - hit_, absl::Seconds(10));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(Text(status), HasSubstr("worker:0 (pid "));
  coordinator_.reset();
  cluster_.reset();
  EXPECT_FALSE(IsAlive(processes_[0]));
}

// Its steps wait for nobody, so that no transport can tell it.
TEST_F(LocalClusterTest, AnAbortEndsStepsThatNeedNoPeer) {
  StartJob(1);
  bool aborted = false;
  const absl::Status status = RunSteps(int64_t{1} << 40, [&](const StepReport&) {
    if (!aborted) coordinator_->Abort(absl::CancelledError("enough"));
    aborted = true;
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(Text(status), HasSubstr("worker:0: the job was aborted: enough"));
}

TEST_F(LocalClusterTest, SaysWhatEachRankHasSent) {
  StartJob(2);
  ASSERT_TRUE(RunSteps(5, nullptr).ok());
  const auto traffic = coordinator_->AskAll(TrafficRequest{});
  ASSERT_TRUE(traffic.ok()) << traffic.status();
  for (const WorkerTraffic& worker : *traffic) {
    ASSERT_EQ(worker.programs.size(), 1u);
    EXPECT_EQ(worker.programs[0].program, "train");
    EXPECT_EQ(worker.programs[0].steps, 5);
    ASSERT_EQ(worker.programs[0].streams.size(), 1u);
    const StreamTraffic& stream = worker.programs[0].streams[0];
    EXPECT_GE(stream.messages, 5);
    // The sum's 3 floats, with the padding between tensors of a bucket.
    EXPECT_EQ(stream.payload_bytes, 5 * 64);
    EXPECT_EQ(worker.header_bytes, stream.messages * 96);
  }
}

TEST_F(LocalClusterTest, SaysWhatStepsAndNodesHaveTaken) {
  StartJob(2);
  ASSERT_TRUE(RunSteps(2, nullptr).ok());
  StepRange timed{"train", 2, 3, {{"rate", 0.5}}};
  timed.statistics = true;
  ASSERT_TRUE(coordinator_->RunSteps({timed}, nullptr).ok());
  const auto statistics = coordinator_->AskAll(StatisticsRequest{});
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  for (const std::vector<ProgramStatistics>& worker : *statistics) {
    ASSERT_EQ(worker.size(), 1u);
    EXPECT_EQ(worker[0].program, "train");
    EXPECT_EQ(worker[0].steps, 5);
    EXPECT_EQ(worker[0].timed_steps, 3);
    EXPECT_GT(worker[0].seconds, 0);
    ASSERT_FALSE(worker[0].nodes.empty());
    double in_nodes = 0;
    for (const NodeStatistics& node : worker[0].nodes) {
      EXPECT_EQ(node.calls % 3, 0) << node.node;
      in_nodes += 1e-9 * static_cast<double>(node.nanoseconds);
    }
    EXPECT_GT(in_nodes, 0);
    EXPECT_LT(in_nodes, worker[0].seconds);
  }
}

TEST_F(LocalClusterTest, PrintsWhatItHasCompiledInParts) {
  StartJob(2);
  const auto whole = coordinator_->Ask(1, ProgramTextRequest{"train", 0});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->total_bytes, static_cast<int64_t>(whole->part.size()));
  EXPECT_THAT(whole->part, HasSubstr("compute:\n"));
  const auto rest = coordinator_->Ask(1, ProgramTextRequest{"train", 10});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->part, whole->part.substr(10));
  EXPECT_EQ(rest->total_bytes, whole->total_bytes);
  const absl::Status beyond =
      coordinator_->Ask(1, ProgramTextRequest{"train", whole->total_bytes + 1}).status();
  EXPECT_EQ(beyond.code(), absl::StatusCode::kOutOfRange) << beyond;
  const absl::Status unknown = coordinator_->Ask(1, ProgramTextRequest{"test", 0}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound) << unknown;
  EXPECT_THAT(Text(unknown), HasSubstr("worker:1 has no program 'test'"));
}

TEST_F(LocalClusterTest, AWorkerThatEndsAtOnceIsNamed) {
  const absl::Time begin = absl::Now();
  const absl::Status status = Start(1, {"/bin/false", "worker"});
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), HasSubstr("worker:0 (pid "));
  EXPECT_THAT(Text(status), HasSubstr("ended with exit code 1 before it answered"));
}

TEST_F(LocalClusterTest, WorkersThatNeverAnswerAreListed) {
  setenv("WEFT_TEST_SILENT", "1", 1);
  const absl::Status status = Start(2, {kWorkerProgram, "worker"}, absl::Seconds(1));
  unsetenv("WEFT_TEST_SILENT");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), HasSubstr("2 of 2 workers cannot be used (waited 1s)"));
  EXPECT_THAT(Text(status), HasSubstr("worker:1 (unix:"));
}

// Start looks every two seconds whether a worker has ended. It let go of those that had answered
// then, and they ended with it: on a busy machine a third of the jobs did not start.
TEST_F(LocalClusterTest, ALateWorkerIsWaitedForByTheOthers) {
  setenv("WEFT_TEST_LATE", "/1", 1);
  StartJob(2);
  unsetenv("WEFT_TEST_LATE");
  EXPECT_TRUE(RunSteps(1, nullptr).ok());
}

TEST_F(LocalClusterTest, AnotherVersionIsRefusedWithBothValues) {
  setenv("WEFT_TEST_VERSION", "old", 1);
  ASSERT_TRUE(Start(1).ok());
  unsetenv("WEFT_TEST_VERSION");
  const absl::Status status = coordinator_->Join(Membership()).status();
  // A refusal like that of a token: exit code 9.
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(Text(status), AllOf(HasSubstr("handshake refused: the version of "),
                                  HasSubstr(" is old (wire format "),
                                  HasSubstr("the coordinator's is test (wire format ")));
}

TEST_F(LocalClusterTest, AJobIsNotJoinedTwice) {
  StartJob(1);
  const absl::Status status = coordinator_->Join(Membership()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(Text(status), HasSubstr("has joined job 77 already"));
}

TEST_F(LocalClusterTest, ASecondCoordinatorIsRefused) {
  StartJob(1);
  GrpcClientOptions options;
  options.address = cluster_->addresses()[0];
  options.rank = RankId(0);
  options.connect_deadline = absl::Now() + absl::Seconds(10);
  options.token = TokenOfTheCluster();
  const absl::Status status = ConnectToWorker(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(Text(status), HasSubstr("attended by another coordinator"));
}

// Other users can read the arguments of a process, and its own user the environment.
TEST_F(LocalClusterTest, TheTokenIsInAPrivateFileAlone) {
  ASSERT_TRUE(Start(2).ok());
  const std::string token = TokenOfTheCluster();
  const std::string socket = cluster_->addresses()[0].substr(5);
  const std::string folder = socket.substr(0, socket.rfind('/'));
  struct stat info = {};
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(stat((folder + "/token").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  for (WorkerClient* const client : cluster_->clients()) {
    const std::string name = client->name();  // "worker:0 (unix:/..., pid 4711)"
    const size_t begin = name.rfind("pid ") + 4;
    const std::string process = "/proc/" + name.substr(begin, name.find(')', begin) - begin);
    for (const char* const file : {"/cmdline", "/environ"}) {
      const auto text = RealFileSystem().ReadFile(process + file);
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_THAT(*text, Not(HasSubstr(token))) << file;
    }
  }
}

TEST_F(LocalClusterTest, AStrangerIsRefusedAndTheJobGoesOn) {
  StartJob(1);
  GrpcClientOptions options;
  options.address = cluster_->addresses()[0];
  options.rank = RankId(0);
  options.connect_deadline = absl::Now() + absl::Seconds(10);
  options.token = "not the token";
  const absl::Status status = ConnectToWorker(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
  EXPECT_THAT(Text(status), HasSubstr("--token-file"));
  EXPECT_TRUE(coordinator_->AskAll(MemoryRequest{}).ok());
}

TEST(RemoteClusterTest, ListsWorkersThatAreNotThere) {
  RemoteClusterOptions options;
  options.addresses = {"127.0.0.1:1", "unix:/nowhere/socket"};
  options.start_timeout = absl::Milliseconds(300);
  const absl::Status status = ConnectToCluster(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), HasSubstr("worker:0 (127.0.0.1:1)"));
  EXPECT_THAT(Text(status), HasSubstr("worker:1 (unix:/nowhere/socket)"));
}

TEST(GrpcServerTest, ATakenPortIsNamedAtOnce) {
  const auto first = GrpcServer::Start({"127.0.0.1:0"});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT((*first)->address(), Not(HasSubstr(":0")));
  const absl::Time begin = absl::Now();
  const absl::Status status = GrpcServer::Start({(*first)->address()}).status();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), HasSubstr((*first)->address()));
  EXPECT_THAT(Text(status), HasSubstr("in use"));
}

TEST(GrpcServerTest, OtherMachinesMayNotConnectUnlessAllowed) {
  const absl::Status status = GrpcServer::Start({"0.0.0.0:0"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), HasSubstr("--insecure-network"));
  EXPECT_TRUE(GrpcServer::Start({"0.0.0.0:0", true}).ok());
}

TEST(GrpcServerTest, RefusesAddressesThatAreNone) {
  for (const std::string address : {"nonsense", "127.0.0.1:99999", "unix:relative", ":80"}) {
    const absl::Status status = GrpcServer::Start({address}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address << ": " << status;
    EXPECT_THAT(Text(status), HasSubstr(address));
  }
}

}  // namespace
}  // namespace weft
