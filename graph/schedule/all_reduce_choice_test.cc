#include "graph/schedule/all_reduce_choice.h"

#include <cmath>
#include <cstring>
#include <random>

#include "graph/schedule/testing/numeric_executor.h"
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

// Replicas that get the same sums and update alike stay equal bit for bit: what they have in common
// is compared (distributed/replica_copies.h). Floats of many magnitudes, so that order matters.
TEST(AllReduceByTest, AllMembersEndWithTheSameBitsWhateverTheAlgorithm) {
  constexpr int64_t kElements = 257;
  std::mt19937 random(11);
  std::uniform_real_distribution<float> exponents(-12, 12);
  for (const auto algorithm : {AllReduceAlgorithm::kRing, AllReduceAlgorithm::kRecursiveDoubling,
                               AllReduceAlgorithm::kHalvingDoubling, AllReduceAlgorithm::kTree,
                               AllReduceAlgorithm::kHierarchical}) {
    for (int members = 2; members <= 9; ++members) {
      SCOPED_TRACE(::testing::Message() << AllReduceAlgorithmName(algorithm) << " of " << members);
      AllReduceTask task{members, {}, kElements, 4};
      for (int m = 0; m < members; ++m) task.hosts.push_back(m / 2);
      std::vector<CollectiveSchedule> schedules;
      std::vector<std::vector<float>> data(static_cast<size_t>(members));
      for (int m = 0; m < members; ++m) {
        schedules.push_back(AllReduceBy(algorithm, task, m));
        for (int64_t i = 0; i < kElements; ++i) {
          const float sign = random() % 2 == 0 ? 1.0F : -1.0F;
          data[static_cast<size_t>(m)].push_back(sign * std::exp2(exponents(random)));
        }
      }
      const auto sums = testing::NumericExecutor<float>(schedules, data).Run();
      for (const std::vector<float>& sum : sums) {
        EXPECT_EQ(std::memcmp(sum.data(), sums[0].data(), kElements * sizeof(float)), 0);
      }
    }
  }
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
