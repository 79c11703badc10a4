#include "training/recovery/waiting_workers.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A worker that is only there, or not.
class IdleClient final : public WorkerClient {
 public:
  bool lost = false;
  bool leaving = false;
  std::string name() const override { return "idle"; }
  bool is_lost() const override { return lost; }
  bool is_leaving() const override { return leaving; }
  absl::StatusOr<WorkerInfo> Join(const JobMembership&) override { return Refusal(); }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string&, const Partition&,
                                               const std::string&) override {
    return Refusal();
  }
  absl::Status WriteVariable(const std::string&, const Tensor&) override { return Refusal(); }
  absl::StatusOr<Tensor> ReadVariable(const std::string&) override { return Refusal(); }
  absl::Status RunSteps(const std::vector<StepRange>&,
                        const std::function<void(const StepReport&)>&) override {
    return Refusal();
  }
  absl::StatusOr<ControlReply> Answer(const ControlRequest&) override { return Refusal(); }
  void Abort(const absl::Status&) override {}

 private:
  static absl::Status Refusal() { return absl::UnimplementedError("nobody asks it"); }
};

class WaitingWorkersTest : public ::testing::Test {
 protected:
  static Plan PlanOf(int data, int pipeline, int micro_batches) {
    Plan plan;
    plan.mesh = {.data = data, .tensor = 1, .pipeline = pipeline};
    plan.micro_batches = micro_batches;
    return plan;
  }
  void AddSpare(const std::string& device = "cpu:0") { Add(device, /*may_add=*/false); }
  void AddJoiner(const std::string& device = "cpu:0") { Add(device, /*may_add=*/true); }
  void Add(const std::string& device, bool may_add) {
    waiting_.Add({kAnyPlace, &clients_[next_], absl::StrCat("address ", next_), device, may_add});
    ++next_;
  }
  // Places and the numbers of those who took them.
  std::vector<std::pair<int, int>> Fill(Membership& membership, const std::string& device = "") {
    std::vector<std::pair<int, int>> filled;
    const std::vector<std::string> devices(static_cast<size_t>(membership.size()), device);
    for (const auto& [place, arrival] : waiting_.FillPlaces(membership, devices)) {
      filled.emplace_back(place, static_cast<IdleClient*>(arrival.client) - clients_);
    }
    return filled;
  }

  IdleClient clients_[8];
  int next_ = 0;
  WaitingWorkers waiting_;
};

TEST_F(WaitingWorkersTest, WhoHasComeFirstTakesThePlaceOfALostOne) {
  Membership membership(PlanOf(3, 1, 3));
  AddSpare();
  AddJoiner();
  EXPECT_THAT(Fill(membership), IsEmpty()) << "no place, and no micro-batch for one more";
  membership.Lose(1, 1);
  EXPECT_THAT(Fill(membership), ElementsAre(std::pair(1, 0)));
  EXPECT_FALSE(membership.is_empty(1));
  EXPECT_FALSE(membership.has_state(1));
  EXPECT_THAT(waiting_.all(), SizeIs(1));
}

TEST_F(WaitingWorkersTest, SparesAddNoReplica) {
  Membership membership(PlanOf(2, 1, 4));
  AddSpare();
  EXPECT_THAT(Fill(membership), IsEmpty());
  AddJoiner();
  EXPECT_THAT(Fill(membership), ElementsAre(std::pair(2, 1)));
  EXPECT_EQ(membership.Next()->plan.mesh.data, 3);
}

TEST_F(WaitingWorkersTest, ReplicasAreAddedUntilTheMicroBatchesAreUsedUp) {
  Membership membership(PlanOf(1, 1, 3));
  for (int i = 0; i < 4; ++i) AddJoiner();
  EXPECT_THAT(Fill(membership), ElementsAre(std::pair(1, 0), std::pair(2, 1)));
  EXPECT_THAT(waiting_.all(), SizeIs(2));
}

TEST_F(WaitingWorkersTest, AReplicaIsFilledOrLeftAsItIs) {
  // Of replica 0 both stages are lost (places 0 and 3), of replica 1 the second one (place 4).
  Membership membership(PlanOf(3, 2, 6));
  for (const int place : {0, 3, 4}) membership.Lose(place, 1);
  AddSpare();
  EXPECT_THAT(Fill(membership), ElementsAre(std::pair(4, 0))) << "that lacks one";
  AddSpare();
  EXPECT_THAT(Fill(membership), IsEmpty());
  AddJoiner();
  EXPECT_THAT(Fill(membership), ElementsAre(std::pair(0, 1), std::pair(3, 2)));
}

TEST_F(WaitingWorkersTest, AFurtherReplicaNeedsAllItsStages) {
  Membership membership(PlanOf(2, 2, 4));
  AddJoiner();
  EXPECT_THAT(Fill(membership), IsEmpty());
  EXPECT_EQ(membership.size(), 4) << "no places are made for one that cannot be filled";
  AddJoiner();
  EXPECT_THAT(Fill(membership), ElementsAre(std::pair(4, 0), std::pair(5, 1)));
  // What it has lost is filled as others are, but not by a spare.
  membership.Lose(5, 1);
  AddSpare();
  EXPECT_THAT(Fill(membership), IsEmpty());
  AddJoiner();
  EXPECT_THAT(Fill(membership), ElementsAre(std::pair(5, 3)));
}

TEST_F(WaitingWorkersTest, TheKindOfDeviceIsKept) {
  Membership membership(PlanOf(2, 1, 4));
  membership.Lose(0, 1);
  AddJoiner("cpu:0");
  AddSpare("cuda:3");
  EXPECT_THAT(Fill(membership, "cuda:0"), ElementsAre(std::pair(0, 1)));
  EXPECT_THAT(Fill(membership, "cpu:0"), ElementsAre(std::pair(2, 0)));
}

TEST_F(WaitingWorkersTest, WhoIsGoneTakesNoPlace) {
  Membership membership(PlanOf(2, 1, 2));
  for (int i = 0; i < 3; ++i) AddSpare();
  clients_[0].lost = true;
  clients_[1].leaving = true;
  const std::vector<Arrival> gone = waiting_.TakeGone();
  ASSERT_THAT(gone, SizeIs(2));
  EXPECT_EQ(gone[0].client, &clients_[0]);
  EXPECT_EQ(gone[1].client, &clients_[1]);
  membership.Lose(1, 1);
  EXPECT_THAT(Fill(membership), ElementsAre(std::pair(1, 2)));
}

}  // namespace
}  // namespace weft
