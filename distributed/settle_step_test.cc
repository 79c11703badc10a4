// A job of three workers loses one; the other two go on from the same step, with what they have.
#include "distributed/settle_step.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "distributed/testing/sum_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The samples of the sum job. Rank 1 has none from a step on: it takes no part in that step.
class EndingSource final : public InputSource {
 public:
  EndingSource(std::unique_ptr<InputSource> source, int64_t end)
      : source_(std::move(source)), end_(end) {}
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    if (step >= end_ && first == 1) return absl::UnavailableError("the disk is gone");
    return source_->Fill(step, input, first, count, target);
  }

 private:
  const std::unique_ptr<InputSource> source_;
  const int64_t end_;
};

// A client whose worker no call reaches.
class LostClient final : public WorkerClient {
 public:
  std::string name() const override { return "worker:1 (lost)"; }
  absl::StatusOr<WorkerInfo> Join(const JobMembership&) override { return Lost(); }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string&, const Partition&,
                                               const std::string&) override {
    return Lost();
  }
  absl::Status WriteVariable(const std::string&, const Tensor&) override { return Lost(); }
  absl::StatusOr<Tensor> ReadVariable(const std::string&) override { return Lost(); }
  absl::Status RunSteps(const std::vector<StepRange>&,
                        const std::function<void(const StepReport&)>&) override {
    return Lost();
  }
  absl::StatusOr<ControlReply> Answer(const ControlRequest&) override { return Lost(); }
  void Abort(const absl::Status&) override {}

 private:
  static absl::Status Lost() { return absl::UnavailableError("worker:1 was lost"); }
};

constexpr char kVersion[] = "1";

// Those of the sum job, whose ranks need each other for nothing after the sum.
std::vector<Partition> Committing(int ranks) {
  std::vector<Partition> partitions = testing::SumJobPartitions(ranks);
  for (Partition& partition : partitions) partition.commits = true;
  return partitions;
}

constexpr int64_t kLostIn = 3;

class SettleStepTest : public ::testing::Test {
 protected:
  static JobMembership Membership(uint64_t job_id, uint64_t continues = 0) {
    JobMembership membership;
    membership.job_id = job_id;
    membership.version = kVersion;
    membership.stall_timeout_seconds = 600;
    membership.commits = true;
    membership.continues_job_id = continues;
    return membership;
  }
  static StepRange Steps(int64_t first, int64_t count) {
    StepRange range;
    range.program = "train";
    range.first_step = first;
    range.count = count;
    range.scalars = {{"rate", 0.5}};
    return range;
  }
  // Steps of three workers until one is lost; the loss of a step is 3 x 4 = 12.
  void LoseOne() {
    Coordinator coordinator(cluster_.clients());
    ASSERT_TRUE(coordinator.Join(Membership(7)).ok());
    const auto added = coordinator.AddProgram("train", Committing(3), "data");
    ASSERT_TRUE(added.ok()) << added.status();
    const absl::Status status =
        coordinator.RunSteps({Steps(0, 100)}, [this](const StepReport& report) { Take(report); });
    ASSERT_TRUE(absl::IsUnavailable(status)) << status;
  }
  void Take(const StepReport& report) {
    losses_.push_back(report.values.at("loss").data<float>()[0]);
  }
  std::vector<WorkerClient*> ClientsLeft() {
    std::vector<WorkerClient*> clients = cluster_.clients();
    clients[1] = &lost_;
    return clients;
  }

  InProcessCluster cluster_{
      3,
      [](const std::string& data) -> absl::StatusOr<std::unique_ptr<InputSource>> {
        auto source = testing::OpenSumJobInput(data);
        if (!source.ok()) return source.status();
        return std::make_unique<EndingSource>(*std::move(source), kLostIn);
      },
      kVersion};
  LostClient lost_;
  std::vector<float> losses_;
};

TEST_F(SettleStepTest, ThoseThatAreLeftGoOnFromTheSameStep) {
  LoseOne();
  const std::vector<WorkerClient*> clients = ClientsLeft();
  auto settled = SettleStep(clients, 1, static_cast<int64_t>(losses_.size()));
  ASSERT_TRUE(settled.ok()) << settled.status();
  EXPECT_THAT(settled->left, ElementsAre(0, 2));
  EXPECT_EQ(settled->steps, kLostIn);
  for (const StepReport& report : settled->reports) Take(report);
  EXPECT_THAT(losses_, ElementsAre(12, 12, 12));

  Coordinator coordinator({clients[0], clients[2]});
  ASSERT_TRUE(coordinator.Join(Membership(8, 7)).ok());
  const auto added = coordinator.AddProgram("train", Committing(2), "data");
  ASSERT_TRUE(added.ok()) << added.status();
  losses_.clear();
  // Rank 1 of the new job reads the sample that the lost one had.
  const absl::Status status =
      coordinator.RunSteps({Steps(0, 2)}, [this](const StepReport& report) { Take(report); });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(losses_, ElementsAre(6, 6));
  const auto weights = coordinator.ReadVariables({"w"});
  ASSERT_TRUE(weights.ok()) << weights.status();
  // Three steps of 0.5 x 12 and two of 0.5 x 6.
  EXPECT_EQ(weights->at("w").data<float>()[0], -(3 * 6 + 2 * 3));
}

TEST_F(SettleStepTest, WhoHasLostAllIsTold) {
  LostClient another;
  const absl::Status status = SettleStep({&lost_, &another}, 1, 0).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(SettleStepTest, AWorkerGoesOnWithItsOwnJobAlone) {
  LoseOne();
  WorkerClient* const client = cluster_.clients()[0];
  const absl::Status other = client->Join(Membership(9, 5)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("is in job 7"));
  EXPECT_TRUE(client->Join(Membership(9, 7)).ok());
  InProcessCluster fresh(1, testing::OpenSumJobInput, kVersion);
  const absl::Status none = fresh.clients()[0]->Join(Membership(9, 7)).status();
  EXPECT_THAT(std::string(none.message()), HasSubstr("is in none"));
}

TEST_F(SettleStepTest, ReportsOfTheNewestStepsAreKept) {
  InProcessCluster one(1, testing::OpenSumJobInput, kVersion);
  Coordinator coordinator(one.clients());
  ASSERT_TRUE(coordinator.Join(Membership(7)).ok());
  ASSERT_TRUE(coordinator.AddProgram("train", Committing(1), "data").ok());
  ASSERT_TRUE(coordinator.RunSteps({Steps(0, kKeptReports + 10)}, nullptr).ok());
  const auto reports = coordinator.Ask(0, StepReportsRequest{.first = 5});
  ASSERT_TRUE(reports.ok()) << reports.status();
  ASSERT_THAT(*reports, SizeIs(kKeptReports));
  for (size_t i = 0; i < reports->size(); ++i) {
    EXPECT_EQ((*reports)[i].step, static_cast<int64_t>(i) + 10);
    EXPECT_EQ((*reports)[i].values.at("loss").data<float>()[0], 2);
  }
  const auto newest = coordinator.Ask(0, StepReportsRequest{.first = kKeptReports + 8});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_THAT(*newest, SizeIs(2));
  const auto later = coordinator.Ask(0, StepReportsRequest{.first = kKeptReports + 10});
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_THAT(*later, IsEmpty());
}

}  // namespace
}  // namespace weft
