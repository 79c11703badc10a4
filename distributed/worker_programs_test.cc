// What a coordinator may hand one worker: programs and the data that they read.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/in_process_transport.h"
#include "distributed/testing/sum_job.h"
#include "distributed/worker.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "tensor/testing/fake_device.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
    environment.max_programs = 3;
    environment.open_transport =
        [this](const JobMembership& job) -> absl::StatusOr<std::unique_ptr<Transport>> {
      hubs_.push_back(std::make_unique<InProcessHub>(1));
      return hubs_.back()->NewTransport(job.rank);
    };
    worker_ = NewWorker(std::move(environment));
    Join(7);
  }

  void Join(uint64_t job_id) {
    JobMembership membership;
    membership.job_id = job_id;
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
  std::vector<std::unique_ptr<InProcessHub>> hubs_;  // of each job
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

TEST_F(WorkerProgramsTest, OneTooManyIsRefusedAndTheOthersStay) {
  for (const std::string program : {"a", "b", "c"}) {
    const absl::Status added = Add(program, "data");
    ASSERT_TRUE(added.ok()) << added;
  }
  const absl::Status refused = Add("d", "data");
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("worker:0 has 3 programs"), HasSubstr("program 'd'")));
  const absl::Status replaced = Add("b", "data");  // in place of the one before
  EXPECT_TRUE(replaced.ok()) << replaced;
  EXPECT_FALSE(Add("d", "data").ok());
  const absl::Status run = RunStep("b");
  EXPECT_TRUE(run.ok()) << run;
  Join(8);
  const absl::Status in_another_job = Add("d", "data");
  EXPECT_TRUE(in_another_job.ok()) << in_another_job;
}

TEST_F(WorkerProgramsTest, SoAreDataOfAProgramThatIsReplacedAgainAndAgain) {
  for (const std::string data : {"a", "b", "c"}) {
    const absl::Status added = Add("train", data);
    ASSERT_TRUE(added.ok()) << added;
  }
  const absl::Status refused = Add("train", "d");
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("worker:0 has 3 data sets"));
  const absl::Status known = Add("train", "a");
  EXPECT_TRUE(known.ok()) << known;
}

}  // namespace
}  // namespace weft::testing
