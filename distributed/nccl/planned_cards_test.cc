#include "distributed/nccl/planned_cards.h"

#include "distributed/testing/sum_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::weft::testing::SumJobPartitions;

constexpr int64_t kBytesOfTwo = int64_t{192} << 20;  // a communicator of two

class PlannedCardsTest : public ::testing::Test {
 protected:
  // Two GPUs of one host; an all-reduce of ranks 0 and 1.
  PlannedCardsTest() {
    cluster_ = ClusterSpec::Local(2, 1);
    for (int i = 0; i < 2; ++i) {
      cluster_.workers[i].device = DeviceKind::kCuda;
      cluster_.workers[i].device_index = i;
    }
    plan_.mesh = {2, 1, 1};
    plan_.workers = {0, 1};
  }
  PlannedCards Planned() {
    const auto planned = PlanCards(cluster_, plan_, SumJobPartitions(2));
    EXPECT_TRUE(planned.ok()) << planned.status();
    return planned.ok() ? *planned : PlannedCards();
  }

  ClusterSpec cluster_;
  Plan plan_;
};

TEST_F(PlannedCardsTest, GpusOfAHostAreJoined) {
  const PlannedCards planned = Planned();
  EXPECT_THAT(planned.groups.groups, ElementsAre(ElementsAre(RankId(0), RankId(1))));
  EXPECT_THAT(planned.groups.host, IsEmpty());
  EXPECT_THAT(NcclBytes(planned, 2), ElementsAre(kBytesOfTwo, kBytesOfTwo));
}

// Indices count on each host.
TEST_F(PlannedCardsTest, OneIndexOnTwoHostsIsTwoCards) {
  cluster_.workers[1].device_index = 0;
  EXPECT_EQ(Planned().groups.refusal, "worker:1 shares its card with another worker");
  EXPECT_THAT(NcclBytes(Planned(), 2), ElementsAre(0, 0));
  cluster_.workers[1].host = "other";
  EXPECT_THAT(Planned().groups.groups, SizeIs(1));
}

TEST_F(PlannedCardsTest, CardsAreThoseOfThePlansWorkers) {
  cluster_.workers.push_back(cluster_.workers[0]);
  cluster_.workers[2].device = DeviceKind::kCpu;
  plan_.workers = {2, 1};
  const PlannedCards planned = Planned();
  ASSERT_THAT(planned.groups.host, SizeIs(1));
  EXPECT_EQ(planned.groups.host[0].reason, "worker:0 has no GPU");
}

TEST_F(PlannedCardsTest, AStrictPlanGoesThroughTheHost) {
  plan_.strict = true;
  EXPECT_THAT(Planned().groups.groups, IsEmpty());
  EXPECT_THAT(Planned().groups.host, SizeIs(1));
}

}  // namespace
}  // namespace weft
