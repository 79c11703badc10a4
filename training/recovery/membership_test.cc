#include "training/recovery/membership.h"

#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Plan PlanOf(int data, int pipeline = 1) {
  Plan plan;
  plan.mesh = {.data = data, .tensor = 1, .pipeline = pipeline};
  plan.micro_batches = 12;
  return plan;
}

TEST(MembershipTest, ANewcomerTakesTheStateOfAnotherReplica) {
  Membership membership(PlanOf(3));
  EXPECT_TRUE(membership.Lose(0, 1));
  EXPECT_THAT(membership.Next()->places, ElementsAre(1, 2));
  EXPECT_EQ(membership.Come(0), 2);
  const auto next = membership.Next();
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_THAT(next->places, ElementsAre(0, 1, 2));
  EXPECT_THAT(next->handovers, ElementsAre(Handover{1, 0}));
  membership.Settle(*next);
  EXPECT_THAT(membership.Next()->handovers, IsEmpty());
}

TEST(MembershipTest, OfItsOwnStage) {
  // Ranks 0 and 1 are the first stages of the two replicas, 2 and 3 the second ones.
  Membership membership(PlanOf(2, 2));
  membership.Lose(3, 1);
  EXPECT_THAT(membership.Next()->places, ElementsAre(0, 2));
  membership.Come(3);
  EXPECT_THAT(membership.Next()->places, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(membership.Next()->handovers, ElementsAre(Handover{2, 3}));
}

TEST(MembershipTest, WhatIsSaidOfAnEarlierWorkerChangesNothing) {
  Membership membership(PlanOf(2));
  EXPECT_EQ(membership.Come(1), 0);  // the place is taken
  EXPECT_TRUE(membership.Lose(1, 1));
  EXPECT_FALSE(membership.Lose(1, 1));
  EXPECT_EQ(membership.Come(1), 2);
  EXPECT_FALSE(membership.Lose(1, 1));  // of the one before
  EXPECT_THAT(membership.Next()->places, ElementsAre(0, 1));
  EXPECT_TRUE(membership.Lose(1, 2));
}

TEST(MembershipTest, StateThatNobodyHasIsAnError) {
  Membership membership(PlanOf(2));
  membership.Lose(0, 1);
  membership.Lose(1, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(membership.Next().status()));
  membership.Come(0);
  const absl::Status status = membership.Next().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has the state of rank 0"));
}

TEST(MembershipTest, AFurtherReplicaComesBehindTheOthers) {
  // Places 4 and 5 are the first and the second stage of a third replica.
  Membership membership(PlanOf(2, 2));
  membership.Grow();
  EXPECT_THAT(membership.replicas(),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 5)));
  EXPECT_THAT(membership.vacancies(), ElementsAre(4, 5));
  EXPECT_THAT(membership.Next()->places, ElementsAre(0, 1, 2, 3)) << "nobody is there yet";
  EXPECT_EQ(membership.Come(4), 1);
  EXPECT_THAT(membership.Next()->places, ElementsAre(0, 1, 2, 3)) << "it is not whole";
  EXPECT_EQ(membership.Come(5), 1);
  const auto next = membership.Next();
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->plan.mesh, (Mesh{.data = 3, .tensor = 1, .pipeline = 2}));
  EXPECT_EQ(next->plan.micro_batches, 12);
  // By rank: the first stages of all three, then the second ones.
  EXPECT_THAT(next->places, ElementsAre(0, 1, 4, 2, 3, 5));
  EXPECT_THAT(next->handovers, ElementsAre(Handover{0, 2}, Handover{3, 5}));
  membership.Settle(*next);
  membership.Lose(0, 1);
  EXPECT_THAT(membership.Next()->places, ElementsAre(1, 4, 3, 5));
  EXPECT_TRUE(membership.has_state(4));
}

TEST(MembershipTest, HasRoomForAsManyReplicasAsMicroBatches) {
  Plan plan = PlanOf(2);
  plan.micro_batches = 3;
  Membership membership(plan);
  EXPECT_TRUE(membership.has_room());
  membership.Grow();
  EXPECT_TRUE(membership.has_room()) << "an empty place counts for nothing";
  membership.Come(2);
  EXPECT_FALSE(membership.has_room());
  membership.Lose(0, 1);
  EXPECT_TRUE(membership.has_room());
}

// Against the rules, said again: members are whole replicas, each newcomer takes from a member of
// its own stage, and nothing depends on how it came to that.
TEST(MembershipTest, KeepsItsRulesUnderAnyEvents) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const int data = 1 + static_cast<int>(random() % 4),
              stages = 1 + static_cast<int>(random() % 3);
    Membership membership(PlanOf(data, stages));
    std::set<int> with_state, newcomers;
    for (int place = 0; place < data * stages; ++place) with_state.insert(place);
    for (int event = 0; event < 40; ++event) {
      const int place = static_cast<int>(random() % static_cast<unsigned>(data * stages));
      if (random() % 2 == 0) {
        membership.Lose(place, membership.incarnation(place));
        with_state.erase(place);
        newcomers.erase(place);
      } else if (membership.Come(place) != 0) {
        newcomers.insert(place);
      }
      const auto next = membership.Next();
      std::vector<int> whole;
      for (int rank = 0; rank < data * stages; ++rank) {
        bool is_whole = true;
        for (int stage = 0; stage < stages; ++stage) {
          const int member = stage * data + rank % data;
          is_whole = is_whole && (with_state.contains(member) || newcomers.contains(member));
        }
        if (is_whole) whole.push_back(rank);
      }
      if (!next.ok()) continue;
      EXPECT_EQ(next->places, whole) << seed;
      EXPECT_EQ(next->plan.micro_batches, 12);
      size_t taken = 0;
      for (const Handover& one : next->handovers) {
        const int from = whole[static_cast<size_t>(one.from)];
        const int to = whole[static_cast<size_t>(one.to)];
        EXPECT_TRUE(with_state.contains(from)) << seed;
        EXPECT_TRUE(newcomers.contains(to)) << seed;
        EXPECT_EQ(from / data, to / data) << seed;
        ++taken;
      }
      size_t expected = 0;
      for (const int member : whole) expected += newcomers.contains(member) ? 1 : 0;
      EXPECT_EQ(taken, expected) << seed;
      if (random() % 2 == 0) {
        membership.Settle(*next);
        for (const int member : whole) {
          newcomers.erase(member);
          with_state.insert(member);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
