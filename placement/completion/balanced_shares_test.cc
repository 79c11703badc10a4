#include "placement/completion/balanced_shares.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(BalanceSharesTest, EqualReplicasHaveEqualParts) {
  EXPECT_THAT(BalanceShares({{1, 0}, {1, 0}}, 8), ElementsAre(4, 4));
  EXPECT_THAT(BalanceShares({{1, 0}, {1, 0}, {1, 0}}, 8), ElementsAre(3, 3, 2));
}

TEST(BalanceSharesTest, AThirdOfTheSpeedIsAThirdOfThePart) {
  EXPECT_THAT(BalanceShares({{1, 0}, {3, 0}}, 8), ElementsAre(6, 2));
}

TEST(BalanceSharesTest, EachHasOneAtLeast) {
  EXPECT_THAT(BalanceShares({{1, 0}, {100, 0}, {1, 0}}, 4), ElementsAre(2, 1, 1));
}

TEST(BalanceSharesTest, WhatIsDoneOncePerStepCannotBeMoved) {
  // Six micro-batches of the first take 6, the last two of the second 2 + 4.
  EXPECT_THAT(BalanceShares({{1, 0}, {1, 4}}, 8), ElementsAre(6, 2));
  EXPECT_DOUBLE_EQ(SecondsWithShares({{1, 0}, {1, 4}}, {4, 4}), 8);
  EXPECT_DOUBLE_EQ(SecondsWithShares({{1, 0}, {1, 4}}, {6, 2}), 6);
}

// Against all ways to part them.
TEST(BalanceSharesTest, NothingIsFaster) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0.1, 2);
  for (int round = 0; round < 200; ++round) {
    std::vector<ReplicaSpeed> replicas;
    for (int i = 0; i < 3; ++i) replicas.push_back({seconds(random), seconds(random)});
    double best = 1e9;
    for (int a = 1; a <= 8; ++a) {
      for (int b = 1; a + b <= 9; ++b) {
        best = std::min(best, SecondsWithShares(replicas, {a, b, 10 - a - b}));
      }
    }
    EXPECT_DOUBLE_EQ(SecondsWithShares(replicas, BalanceShares(replicas, 10)), best) << round;
  }
}

}  // namespace
}  // namespace weft
