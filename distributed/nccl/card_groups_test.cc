#include "distributed/nccl/card_groups.h"

#include "distributed/testing/sum_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::weft::testing::SumJobPartitions;

class CardGroupsTest : public ::testing::Test {
 protected:
  // An all-reduce of ranks 0 and 1.
  std::vector<Partition> partitions_ = SumJobPartitions(2);
  std::vector<RankCard> cards_ = {{"m/01:00.0", 22809, ""}, {"m/02:00.0", 22809, ""}};
};

TEST_F(CardGroupsTest, CardsOfOneVersionAreJoined) {
  const CardGroupChoice choice = ChooseCardGroups(cards_, partitions_, false);
  EXPECT_THAT(choice.groups, ElementsAre(ElementsAre(RankId(0), RankId(1))));
  EXPECT_THAT(choice.host, IsEmpty());
  EXPECT_THAT(choice.refusal, IsEmpty());
}

// It goes through the host, which is nothing to tell people of.
TEST_F(CardGroupsTest, AGroupWithACpuIsNoMatterOfCards) {
  cards_[1] = {};
  const CardGroupChoice choice = ChooseCardGroups(cards_, partitions_, false);
  EXPECT_THAT(choice.groups, IsEmpty());
  EXPECT_THAT(choice.refusal, IsEmpty());
  ASSERT_THAT(choice.host, SizeIs(1));
  EXPECT_THAT(choice.host[0].members, ElementsAre(RankId(0), RankId(1)));
  EXPECT_EQ(choice.host[0].reason, "worker:1 has no GPU");
}

TEST_F(CardGroupsTest, AGroupOfCpusHasNoCards) {
  cards_ = {};
  EXPECT_THAT(ChooseCardGroups(cards_, partitions_, false).host, IsEmpty());
}

TEST_F(CardGroupsTest, TwoRanksOnOneCardAreNot) {
  cards_[1].name = cards_[0].name;
  const CardGroupChoice choice = ChooseCardGroups(cards_, partitions_, false);
  EXPECT_THAT(choice.groups, IsEmpty());
  EXPECT_EQ(choice.refusal, "worker:1 shares its card with another worker");
  ASSERT_THAT(choice.host, SizeIs(1));
  EXPECT_EQ(choice.host[0].reason, choice.refusal);
}

TEST_F(CardGroupsTest, TwoVersionsAreNot) {
  cards_[1].nccl_version = 21805;
  const CardGroupChoice choice = ChooseCardGroups(cards_, partitions_, false);
  EXPECT_THAT(choice.groups, IsEmpty());
  EXPECT_EQ(choice.refusal, "worker:1 has NCCL 2.18.5, worker:0 has 2.28.9");
}

TEST_F(CardGroupsTest, WhatIsMissingIsSaid) {
  cards_[0] = {"m/01:00.0", 0, "NCCL cannot be opened"};
  EXPECT_THAT(ChooseCardGroups(cards_, partitions_, false).refusal,
              HasSubstr("worker:0: NCCL cannot be opened"));
}

TEST_F(CardGroupsTest, AStrictJobKeepsItsOrder) {
  const CardGroupChoice choice = ChooseCardGroups(cards_, partitions_, true);
  EXPECT_THAT(choice.groups, IsEmpty());
  EXPECT_THAT(choice.refusal, HasSubstr("strict"));
}

TEST_F(CardGroupsTest, RanksWithoutMicroBatchesHaveAnotherOrder) {
  partitions_[1].micro_batches.clear();
  const CardGroupChoice choice = ChooseCardGroups(cards_, partitions_, false);
  EXPECT_THAT(choice.groups, IsEmpty());
  EXPECT_THAT(choice.refusal, HasSubstr("no micro-batches"));
}

}  // namespace
}  // namespace weft
