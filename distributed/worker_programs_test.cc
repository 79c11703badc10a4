// What a coordinator may hand one worker: programs and the data that they read.
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/in_process_transport.h"
#include "distributed/testing/sum_job.h"
#include "distributed/worker.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "tensor/testing/fake_device.h"

namespace weft::testing {
namespace {

// Data of this description cannot be opened.
constexpr char kGone[] = "gone";

class WorkerProgramsTest : public ::testing::Test {
 protected:
  WorkerProgramsTest() {
    WorkerEnvironment environment;
    environment.device = &device_;
    environment.clock = &RealClock();
    environment.open_input =
        [](const std::string& data) -> absl::StatusOr<std::unique_ptr<InputSource>> {
      if (data == kGone) return absl::NotFoundError("no such file");
      return OpenSumJobInput(data);
    };
    environment.version = "test";
    environment.open_transport =
        [this](const JobMembership& job) -> absl::StatusOr<std::unique_ptr<Transport>> {
      return hub_.NewTransport(job.rank);
    };
    worker_ = NewWorker(std::move(environment));
    JobMembership membership;
    membership.job_id = 7;
    membership.rank = RankId(0);
    membership.version = "test";
    const auto joined = worker_->Join(membership);
    EXPECT_TRUE(joined.ok()) << joined.status();
  }

  absl::Status Add(const std::string& program, const std::string& data) {
    return worker_->AddProgram(program, SumJobPartitions(1)[0], data).status();
  }
  absl::Status RunStep(const std::string& program) {
    return worker_->RunSteps({{program, 0, 1, {{"rate", 0.5}}}}, nullptr);
  }

  FakeDevice device_;
  InProcessHub hub_{1};
  std::unique_ptr<Worker> worker_;
};

// The next program's requirement counted data that were never opened, and the process ended.
TEST_F(WorkerProgramsTest, DataThatCannotBeOpenedLeaveRoomForOthers) {
  for (int i = 0; i < 2; ++i) {
    const absl::Status gone = Add("train", kGone);
    EXPECT_TRUE(absl::IsNotFound(gone)) << gone;
  }
  const absl::Status added = Add("train", "here");
  ASSERT_TRUE(added.ok()) << added;
  const absl::Status run = RunStep("train");
  EXPECT_TRUE(run.ok()) << run;
}

}  // namespace
}  // namespace weft::testing
