#include "placement/rules/sum_groups.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using Sums = std::vector<RankSum>;
using Groups = std::vector<std::vector<int>>;

Groups IndicesOf(const std::vector<SumGroup>& groups) {
  Groups indices;
  for (const SumGroup& group : groups) indices.push_back(group.sums);
  return indices;
}

TEST(SumGroupsTest, ABucketTakesWhatFitsInOrder) {
  const Sums later = {{40}, {60}, {1}, {200}, {50}, {50}};
  const SumGroups groups = GroupSums({}, later, 100);
  EXPECT_TRUE(groups.first.empty());
  EXPECT_EQ(IndicesOf(groups.later), (Groups{{0, 1}, {2}, {3}, {4, 5}}));
  EXPECT_EQ(BytesOf(groups.later[0], later), 100);
}

TEST(SumGroupsTest, ABucketHasOneElementType) {
  const Sums later = {{8}, {8, DType::kFloat64}, {8, DType::kFloat64}, {8}};
  EXPECT_EQ(IndicesOf(GroupSums({}, later, 1000).later), (Groups{{0}, {1, 2}, {3}}));
}

TEST(SumGroupsTest, FirstOnesAreApartUnlessAllFitOneBucket) {
  const Sums first = {{4}, {4}};
  const Sums later = {{40}, {40}};
  const SumGroups apart = GroupSums(first, later, 87);
  EXPECT_EQ(IndicesOf(apart.first), (Groups{{0, 1}}));
  EXPECT_EQ(IndicesOf(apart.later), (Groups{{2, 3}}));
  const SumGroups together = GroupSums(first, later, 88);
  EXPECT_EQ(IndicesOf(together.first), (Groups{{0, 1, 2, 3}}));
  EXPECT_TRUE(together.later.empty());
  const Sums other = {{40, DType::kFloat64}};
  EXPECT_EQ(IndicesOf(GroupSums(first, other, 1000).later), (Groups{{2}}));
}

// They go at once; a bucket that is open stays open.
TEST(SumGroupsTest, WhatIsScatteredTravelsAlone) {
  const Sums first = {{4}};
  const Sums later = {{40}, {50, DType::kFloat32, true}, {40}, {60}};
  const SumGroups groups = GroupSums(first, later, 100);
  EXPECT_EQ(IndicesOf(groups.later), (Groups{{2}, {1, 3}, {4}}));
  EXPECT_TRUE(groups.later[0].is_scattered);
  EXPECT_FALSE(groups.later[1].is_scattered);
}

// The others have the buckets that they would have without them.
TEST(SumGroupsTest, ReportsComeLastInBucketsOfTheirOwn) {
  const RankSum report = {4, DType::kFloat32, false, true};
  const Sums first = {{4}, {4}};
  const SumGroups together = GroupSums(first, Sums{{40}, report, {40}, report}, 88);
  EXPECT_EQ(IndicesOf(together.first), (Groups{{0, 1, 2, 4}}));
  EXPECT_EQ(IndicesOf(together.later), (Groups{{3, 5}}));
  const SumGroups apart = GroupSums(first, Sums{report, {50}, report, {50}, {50}}, 100);
  EXPECT_EQ(IndicesOf(apart.first), (Groups{{0, 1}}));
  EXPECT_EQ(IndicesOf(apart.later), (Groups{{3, 5}, {6}, {2, 4}}));
  EXPECT_EQ(IndicesOf(GroupSums({}, Sums{report}, 100).later), (Groups{{0}}));
}

TEST(SumGroupsTest, ScatteringNeedsReplicasAndAnyOrder) {
  EXPECT_TRUE(ScattersSums({2, 2, Reduction::kUnordered}));
  EXPECT_FALSE(ScattersSums({2, 1, Reduction::kUnordered}));
  EXPECT_FALSE(ScattersSums({1, 3, Reduction::kUnordered}));
  EXPECT_FALSE(ScattersSums({2, 3, Reduction::kOrderedTree}));
  EXPECT_TRUE(SplitsVariables({2, 3, Reduction::kOrderedTree}));
  EXPECT_FALSE(SplitsVariables({2, 0, Reduction::kUnordered}));
}

TEST(SumGroupsTest, ASumIsScatteredWhereRowsAreEnoughAtOnePlace) {
  const DataAxis axis = {2, 2, Reduction::kUnordered};
  const SumUse rows = {/*is_first=*/false, /*are_rows_enough=*/true, /*is_read_elsewhere=*/false};
  EXPECT_TRUE(IsScattered(axis, rows));
  EXPECT_FALSE(IsScattered({2, 1, Reduction::kUnordered}, rows));
  EXPECT_FALSE(IsScattered(axis, {/*is_first=*/true, true, false}));
  EXPECT_FALSE(IsScattered(axis, {false, /*are_rows_enough=*/false, false}));
  EXPECT_FALSE(IsScattered(axis, {false, true, /*is_read_elsewhere=*/true}));
}

}  // namespace
}  // namespace weft
