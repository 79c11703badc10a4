// What workers do when their coordinator is killed or stopped: they end their step, and themselves
// if it started them.
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/coordinator.h"
#include "distributed/process/local_cluster.h"
#include "distributed/testing/sum_job.h"
#include "gtest/gtest.h"
#include "platform/process.h"

namespace weft {
namespace {

constexpr int kWorkers = 2;

absl::Time In(int seconds) { return absl::Now() + absl::Seconds(seconds); }

// Workers that this test starts, and a coordinator in a process of its own that drives them.
class CoordinatorLossTest : public ::testing::Test {
 protected:
  CoordinatorLossTest() {
    folder_ = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~CoordinatorLossTest() override {
    coordinator_.reset();
    workers_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // `owned`: as a coordinator starts its own workers.
  void StartJob(bool owned) {
    for (int i = 0; i < kWorkers; ++i) {
      addresses_.push_back(absl::StrCat("unix:", folder_, "/", i));
      ProcessOptions worker;
      worker.arguments = {"distributed/testing/worker_main", "worker", "--listen",
                          addresses_.back()};
      if (owned) {
        worker.arguments.insert(worker.arguments.end(),
                                {"--ends-with-parent", absl::StrCat(CurrentProcessId())});
      }
      auto started = RealProcessLauncher().Start(worker);
      ASSERT_TRUE(started.ok()) << started.status();
      workers_.push_back(*std::move(started));
    }
    ProcessOptions coordinator;
    coordinator.arguments = {"distributed/testing/coordinator_main"};
    coordinator.arguments.insert(coordinator.arguments.end(), addresses_.begin(), addresses_.end());
    coordinator.standard_output.kind = ProcessOutput::Kind::kPipe;
    auto started = RealProcessLauncher().Start(coordinator);
    ASSERT_TRUE(started.ok()) << started.status();
    coordinator_ = *std::move(started);
    const auto line = coordinator_->ReadLine(In(60));
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_EQ(*line, "running");
  }

  std::string folder_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::unique_ptr<Process> coordinator_;
};

TEST_F(CoordinatorLossTest, WorkersOfAKilledCoordinatorEndWithinFiveSeconds) {
  StartJob(/*owned=*/true);
  ASSERT_TRUE(coordinator_->Signal(SIGKILL).ok());
  const absl::Time deadline = In(5);
  for (const auto& worker : workers_) {
    EXPECT_EQ(worker->WaitUntil(deadline), ExitStatus{.code = 0}) << worker->id();
  }
}

TEST_F(CoordinatorLossTest, WorkersOfAStoppedCoordinatorEndWithinTenSeconds) {
  StartJob(/*owned=*/true);
  ASSERT_TRUE(coordinator_->Signal(SIGSTOP).ok());
  const absl::Time deadline = In(10);
  for (const auto& worker : workers_) {
    EXPECT_TRUE(worker->WaitUntil(deadline).has_value()) << worker->id();
  }
}

TEST_F(CoordinatorLossTest, WorkersThatWereStartedByHandServeTheNextOne) {
  StartJob(/*owned=*/false);
  ASSERT_TRUE(coordinator_->Signal(SIGKILL).ok());
  ASSERT_TRUE(coordinator_->WaitUntil(In(5)).has_value());
  const absl::Time deadline = In(10);
  RemoteClusterOptions options;
  options.addresses = addresses_;
  options.token = testing::kTestToken;
  auto cluster = ConnectToCluster(options);
  // The one before is attended to until its stream has broken.
  while (!cluster.ok() && absl::Now() < deadline) cluster = ConnectToCluster(options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  Coordinator coordinator((*cluster)->clients());
  JobMembership membership;
  membership.job_id = 4712;
  membership.addresses = addresses_;
  membership.version = "test";
  const auto joined = [&] { return coordinator.Join(membership).status(); };
  absl::Status status = joined();
  // The step before may still be on its way to its end.
  for (; !status.ok() && absl::Now() < deadline; status = joined()) ++membership.job_id;
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(coordinator.AddProgram("train", testing::SumJobPartitions(kWorkers), "data").ok());
  std::vector<float> losses;
  status = coordinator.RunSteps({{"train", 0, 3, {{"rate", 0.5}}}}, [&](const StepReport& report) {
    losses.push_back(report.values.at("loss").data<float>()[0]);
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(losses, (std::vector<float>{6, 6, 6}));
}

}  // namespace
}  // namespace weft
