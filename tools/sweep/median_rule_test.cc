#include "tools/sweep/median_rule.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Running means at the second rung: 3, 2 and 5; their median is 3.
const std::vector<RungScores>& Earlier() {
  static const auto* const scores = new std::vector<RungScores>{{4, 2, 1}, {3, 1}, {6, 4}};
  return *scores;
}

TEST(MedianRule, EndsATrialThatIsWorseThanTheMedianOfMeans) {
  EXPECT_EQ(MedianThatEnds({4, 3.5}, Earlier(), false), std::optional<double>(3));
}

TEST(MedianRule, LooksAtTheBestScoreSoFar) {
  EXPECT_EQ(MedianThatEnds({2.9, 9}, Earlier(), false), std::nullopt);
}

TEST(MedianRule, AnEqualScoreGoesOn) {
  EXPECT_EQ(MedianThatEnds({4, 3}, Earlier(), false), std::nullopt);
}

TEST(MedianRule, OfMetricsWhereMoreIsBetter) {
  EXPECT_EQ(MedianThatEnds({2, 2.5}, Earlier(), true), std::optional<double>(3));
  EXPECT_EQ(MedianThatEnds({2, 3.5}, Earlier(), true), std::nullopt);
}

// At the third rung there is one trial, at the first there are three with median 4.
TEST(MedianRule, CountsTrialsThatCameToTheRungAlone) {
  EXPECT_EQ(MedianThatEnds({9, 9, 9}, Earlier(), false), std::nullopt);
  EXPECT_EQ(MedianThatEnds({4.5}, Earlier(), false), std::optional<double>(4));
}

TEST(MedianRule, NeedsThreeTrials) {
  EXPECT_EQ(MedianThatEnds({9}, {{1}, {2}}, false), std::nullopt);
  EXPECT_EQ(MedianThatEnds({9}, {{1}, {2}, {3}}, false), std::optional<double>(2));
}

TEST(MedianRule, OfAnEvenNumberIsTheMeanOfTheMiddle) {
  EXPECT_EQ(MedianThatEnds({9}, {{1}, {2}, {4}, {8}}, false), std::optional<double>(3));
}

// Curves a + (1 - a) / 2^rung with limits 0.1 to 0.6: the trials come best first, so each one after
// the third is worse than the median of those before it, once its curve has come near its limit.
TEST(MedianRule, OnCurvesThatFallToTheirLimits) {
  std::vector<RungScores> curves;
  std::vector<size_t> rungs;  // to which each came
  for (const double limit : {0.1, 0.2, 0.3, 0.6, 0.05, 0.9}) {
    RungScores own;
    for (int rung = 0; rung < 3; ++rung) {
      own.push_back(limit + (1 - limit) / std::pow(2, rung + 1));
      if (MedianThatEnds(own, curves, false).has_value()) break;
    }
    rungs.push_back(own.size());
    curves.push_back(own);
  }
  // 0.6 begins at 0.8, above the median 0.6 of 0.55, 0.6 and 0.65; 0.05 is the best; 0.9 begins at
  // 0.95, above the median 0.6 of five.
  EXPECT_THAT(rungs, ::testing::ElementsAre(3, 3, 3, 1, 3, 1));
}

TEST(BestTrial, IsTheFirstOfEqualOnes) {
  EXPECT_EQ(BestTrial({2, 1, 1, 3}, false), 1);
  EXPECT_EQ(BestTrial({2, 3, 1, 3}, true), 1);
}

TEST(BestTrial, OnlyOfFinishedOnes) {
  EXPECT_EQ(BestTrial({std::nullopt, 5, std::nullopt}, false), 1);
  EXPECT_EQ(BestTrial({kNan, 5}, true), 1);
  EXPECT_EQ(BestTrial({std::nullopt}, false), -1);
  EXPECT_EQ(BestTrial({}, false), -1);
}

}  // namespace
}  // namespace weft
