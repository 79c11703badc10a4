// Spares, and workers that ask to be taken in, as processes.
#include "distributed/process/further_workers.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/testing/sum_job.h"
#include "distributed/worker_client.h"
#include "distributed/worker_source.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/process.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kWorkerProgram[] = "distributed/testing/worker_main";
constexpr absl::Duration kTimeout = absl::Seconds(60);

class FurtherWorkersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/weft-further-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    further_.reset();
    processes_.clear();
    std::filesystem::remove_all(folder_);
  }
  std::string Socket(const std::string& name) const {
    return absl::StrCat("unix:", folder_, "/", name);
  }
  // A worker at Socket(name); `join`: it asks there.
  Process& StartWorker(const std::string& name, const std::string& join = "") {
    ProcessOptions options;
    options.arguments = {kWorkerProgram, "worker", "--listen", Socket(name)};
    if (!join.empty()) options.arguments.insert(options.arguments.end(), {"--join", join});
    auto process = RealProcessLauncher().Start(options);
    EXPECT_TRUE(process.ok()) << process.status();
    processes_.push_back(*std::move(process));
    return *processes_.back();
  }
  absl::Status Start(FurtherWorkersOptions options = {}) {
    options.members = {Socket("member0"), Socket("member1")};
    options.is_local = true;
    options.token = testing::kTestToken;
    options.version = "test";
    auto further = FurtherWorkers::Start(options);
    if (!further.ok()) return further.status();
    further_ = *std::move(further);
    return absl::OkStatus();
  }
  absl::Status Listen() {
    FurtherWorkersOptions options;
    options.listen = Socket("desk");
    return Start(options);
  }
  // The next that comes; without a client where none does in time.
  Arrival Next() {
    const absl::Time deadline = absl::Now() + kTimeout;
    while (absl::Now() < deadline) {
      const std::vector<Arrival> arrivals = further_->Take(absl::InfinitePast());
      if (!arrivals.empty()) return arrivals.front();
      absl::SleepFor(absl::Milliseconds(20));
    }
    return {};
  }
  static absl::Status Join(const Arrival& arrival) {
    JobMembership membership;
    membership.job_id = 78;
    membership.rank = RankId(0);
    membership.addresses = {arrival.address};
    membership.version = "test";
    return arrival.client->Join(membership).status();
  }
  static bool EndsWith(Process& process, int code) {
    const auto end = process.WaitUntil(absl::Now() + kTimeout);
    return end.has_value() && end->code == code;
  }

  std::string folder_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::unique_ptr<FurtherWorkers> further_;
};

TEST_F(FurtherWorkersTest, AWorkerThatAsksComesForAnyPlace) {
  ASSERT_TRUE(Listen().ok());
  Process& process = StartWorker("joiner", further_->address());
  const Arrival arrival = Next();
  ASSERT_NE(arrival.client, nullptr);
  EXPECT_EQ(arrival.place, kAnyPlace);
  EXPECT_TRUE(arrival.may_add);
  EXPECT_EQ(arrival.address, Socket("joiner"));
  EXPECT_EQ(arrival.device, "cpu:0");
  EXPECT_THAT(arrival.client->name(), HasSubstr("worker:2 ("));
  EXPECT_EQ(Join(arrival), absl::OkStatus());
  further_->TakenIn(*arrival.client);
  // It ends with the job that it has joined.
  further_.reset();
  EXPECT_TRUE(EndsWith(process, 0));
}

TEST_F(FurtherWorkersTest, WhoIsRefusedEnds) {
  ASSERT_TRUE(Listen().ok());
  Process& process = StartWorker("joiner", further_->address());
  const Arrival arrival = Next();
  ASSERT_NE(arrival.client, nullptr);
  further_->Refuse(*arrival.client, absl::FailedPreconditionError("another op library"));
  EXPECT_THAT(further_->Take(absl::InfinitePast()), IsEmpty());
  EXPECT_TRUE(EndsWith(process, 1)) << "it has asked again, and was told";
}

TEST_F(FurtherWorkersTest, WhoIsLostMayAskAgain) {
  ASSERT_TRUE(Listen().ok());
  Process& process = StartWorker("joiner", further_->address());
  const Arrival arrival = Next();
  ASSERT_NE(arrival.client, nullptr);
  further_->TakenIn(*arrival.client);
  // The job has given it up, though it lives: its client goes, and it comes back.
  further_->Lose({arrival.client});
  const Arrival again = Next();
  ASSERT_NE(again.client, nullptr);
  EXPECT_EQ(again.address, arrival.address);
  further_->Release({again.client});
  EXPECT_FALSE(process.Poll().has_value());
}

TEST_F(FurtherWorkersTest, SparesAreThereAtTheStart) {
  StartWorker("spare");
  FurtherWorkersOptions options;
  options.spares = {{Socket("spare"), "cpu:0"}};
  ASSERT_TRUE(Start(options).ok());
  const std::vector<Arrival> arrivals = further_->Take(absl::InfinitePast());
  ASSERT_THAT(arrivals, SizeIs(1));
  EXPECT_EQ(arrivals[0].place, kAnyPlace);
  EXPECT_FALSE(arrivals[0].may_add);
  EXPECT_THAT(further_->clients(), ElementsAre(arrivals[0].client));
  EXPECT_EQ(Join(arrivals[0]), absl::OkStatus());
  EXPECT_FALSE(arrivals[0].client->is_lost());
  EXPECT_EQ(further_->address(), "");
}

// One that was lost is awaited where it was.
TEST_F(FurtherWorkersTest, ASpareThatIsLostMayComeBack) {
  Process& process = StartWorker("spare");
  FurtherWorkersOptions options;
  options.spares = {{Socket("spare"), "cpu:0"}};
  ASSERT_TRUE(Start(options).ok());
  const std::vector<Arrival> arrivals = further_->Take(absl::InfinitePast());
  ASSERT_THAT(arrivals, SizeIs(1));
  ASSERT_EQ(kill(static_cast<pid_t>(process.id()), SIGKILL), 0);
  const absl::Time deadline = absl::Now() + kTimeout;
  while (!arrivals[0].client->is_lost() && absl::Now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(arrivals[0].client->is_lost()) << "without any call";
  further_->Lose({arrivals[0].client});
  process.WaitUntil(absl::Now() + kTimeout);
  StartWorker("spare");
  const Arrival again = Next();
  ASSERT_NE(again.client, nullptr);
  EXPECT_FALSE(again.may_add);
  EXPECT_EQ(Join(again), absl::OkStatus());
}

TEST_F(FurtherWorkersTest, ASpareThatIsNotThereIsNamed) {
  FurtherWorkersOptions options;
  options.spares = {{Socket("nobody"), "cpu:0"}};
  options.start_timeout = absl::Seconds(1);
  const absl::Status status = Start(options);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("1 of 1 spares cannot be used"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker:2 (unix:"));
}

TEST_F(FurtherWorkersTest, AJobOfThisMachineListensHere) {
  FurtherWorkersOptions options;
  options.listen = "10.0.0.7:0";
  options.insecure_network = true;
  const absl::Status status = Start(options);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("workers are on sockets of this machine"));
}

}  // namespace
}  // namespace weft
