#include "graph/schedule/all_reduce_choice.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

std::string Choice(int members, int64_t bytes, std::vector<int> hosts = {}) {
  return std::string(
      AllReduceAlgorithmName(FastestAllReduce({members, std::move(hosts), bytes / 4, 4})));
}

TEST(FastestAllReduceTest, TwoMembersAlwaysExchange) {
  for (const int64_t bytes : {4, 1 << 20, 1 << 30}) {
    EXPECT_EQ(Choice(2, bytes), "recursive_doubling");
    EXPECT_EQ(Choice(2, bytes, {0, 1}), "recursive_doubling");
  }
}

TEST(FastestAllReduceTest, LittleDataTakesTheFewestRounds) {
  EXPECT_EQ(Choice(3, 4 << 10), "recursive_doubling");
  EXPECT_EQ(Choice(4, 32 << 10), "recursive_doubling");
  EXPECT_EQ(Choice(8, 16 << 10), "recursive_doubling");
}

TEST(FastestAllReduceTest, MuchDataTakesTheFewestBytes) {
  EXPECT_EQ(Choice(4, (32 << 10) + 16), "halving_doubling");
  EXPECT_EQ(Choice(8, 4 << 20), "halving_doubling");
  for (const int members : {3, 5, 6, 7, 9}) EXPECT_EQ(Choice(members, 4 << 20), "ring") << members;
}

// By cost, not by the number alone: 16 rounds of a ring cost more than three times folding.
TEST(FastestAllReduceTest, OtherNumbersMayHalveAndDoubleBetween) {
  EXPECT_EQ(Choice(9, 25 << 10), "recursive_doubling");
  EXPECT_EQ(Choice(9, 27 << 10), "halving_doubling");
  EXPECT_EQ(Choice(9, 29 << 10), "ring");
}

TEST(FastestAllReduceTest, SeveralMembersOnEachOfSeveralHostsGoByHosts) {
  EXPECT_EQ(Choice(4, 4 << 20, {0, 0, 1, 1}), "hierarchical");
  EXPECT_EQ(Choice(6, 4 << 20, {0, 0, 1, 1, 2, 2}), "hierarchical");
  EXPECT_EQ(Choice(5, 4 << 20, {0, 0, 1, 1, 1}), "hierarchical");
  EXPECT_EQ(Choice(4, 1 << 10, {0, 0, 1, 1}), "recursive_doubling");
  EXPECT_EQ(Choice(4, 4 << 20, {0, 1, 2, 3}), "halving_doubling");
  EXPECT_EQ(Choice(3, 4 << 20, {0, 0, 1}), "ring");
  EXPECT_EQ(Choice(4, 4 << 20, {5, 5, 5, 5}), "halving_doubling");
}

TEST(AllReduceByTest, MakesTheScheduleOfTheName) {
  const AllReduceTask task{4, {0, 0, 1, 1}, 40, 4};
  EXPECT_EQ(AllReduceBy(AllReduceAlgorithm::kRing, task, 1).ToString(),
            RingAllReduce(4, 1, 40).ToString());
  EXPECT_EQ(AllReduceBy(AllReduceAlgorithm::kRecursiveDoubling, task, 1).ToString(),
            RecursiveDoublingAllReduce(4, 1, 40).ToString());
  EXPECT_EQ(AllReduceBy(AllReduceAlgorithm::kHalvingDoubling, task, 1).ToString(),
            HalvingDoublingAllReduce(4, 1, 40).ToString());
  EXPECT_EQ(AllReduceBy(AllReduceAlgorithm::kTree, task, 1).ToString(),
            TreeAllReduce(4, 1, 40).ToString());
  EXPECT_EQ(AllReduceBy(AllReduceAlgorithm::kHierarchical, task, 1).ToString(),
            HierarchicalAllReduce(task.hosts, 1, 40).ToString());
}

TEST(ParseAllReduceAlgorithmTest, KnowsItsOwnNamesOnly) {
  for (const auto algorithm : {AllReduceAlgorithm::kRing, AllReduceAlgorithm::kRecursiveDoubling,
                               AllReduceAlgorithm::kHalvingDoubling, AllReduceAlgorithm::kTree,
                               AllReduceAlgorithm::kHierarchical}) {
    EXPECT_EQ(ParseAllReduceAlgorithm(AllReduceAlgorithmName(algorithm)), algorithm);
  }
  EXPECT_EQ(ParseAllReduceAlgorithm("star"), std::nullopt);
}

}  // namespace
}  // namespace weft
