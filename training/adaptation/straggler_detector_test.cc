#include "training/adaptation/straggler_detector.h"

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

using Kind = SpeedChange::Kind;

// Two replicas of 4 micro-batches, 20 ms each, and an update of 5 ms; with noise of ten percent.
class StragglerDetectorTest : public ::testing::Test {
 protected:
  // `work(rank, step)` is how many times as long everything takes.
  void Run(int64_t first, int64_t last, const std::function<double(int, int64_t)>& work) {
    std::uniform_real_distribution<double> noise(0.9, 1.1);
    for (int64_t step = first; step < last; ++step) {
      std::vector<RankWork> ranks;
      for (int rank = 0; rank < 2; ++rank) {
        const double factor = work(rank, step) * noise(random_);
        ranks.push_back({factor * micro_batches_[rank] * micro_batch_seconds_,
                         factor * update_seconds_, micro_batches_[rank]});
      }
      for (const SpeedChange& change : watch_.Add(step, "64x0", ranks)) changes_.push_back(change);
    }
  }
  static double Usual(int, int64_t) { return 1; }

  std::mt19937 random_{1};
  StragglerDetector watch_{{{1}, {0}}};
  std::vector<int> micro_batches_ = {4, 4};
  double micro_batch_seconds_ = 0.020;
  double update_seconds_ = 0.005;
  std::vector<SpeedChange> changes_;
};

TEST_F(StragglerDetectorTest, AWorkerThatSlowsDownIsNamedWithinFiveStepsWithItsFactor) {
  for (const double factor : {1.6, 2.1, 5.0}) {
    watch_ = StragglerDetector({{1}, {0}});
    changes_.clear();
    Run(0, 100, [&](int rank, int64_t step) { return rank == 1 && step >= 40 ? factor : 1; });
    ASSERT_THAT(changes_, SizeIs(1)) << factor;
    EXPECT_EQ(changes_[0].kind, Kind::kSlower);
    EXPECT_EQ(changes_[0].rank, 1);
    EXPECT_EQ(changes_[0].since, 40);
    EXPECT_LT(changes_[0].step, 45);
    EXPECT_NEAR(changes_[0].factor, factor, 0.1 * factor);
    EXPECT_NEAR(changes_[0].usual, 0.085, 0.1 * 0.085 * 1.5);
    EXPECT_NEAR(changes_[0].seconds, factor * 0.085, 0.1 * factor * 0.085);
  }
}

TEST_F(StragglerDetectorTest, AStepOrTwoAreNoChange) {
  Run(0, 200, [](int rank, int64_t step) { return rank == 1 && step % 10 < 2 ? 3.0 : 1.0; });
  EXPECT_THAT(changes_, IsEmpty());
}

TEST_F(StragglerDetectorTest, NoiseBelowTheBoundIsNoChange) {
  Run(0, 500, [](int rank, int64_t step) { return rank == 1 && step > 50 ? 1.2 : 1.0; });
  EXPECT_THAT(changes_, IsEmpty());
}

TEST_F(StragglerDetectorTest, ThatItRecoversIsToldToo) {
  Run(0, 100, [](int rank, int64_t step) { return rank == 0 && step >= 20 && step < 60 ? 3 : 1; });
  ASSERT_THAT(changes_, SizeIs(2));
  EXPECT_EQ(changes_[1].kind, Kind::kRecovered);
  EXPECT_EQ(changes_[1].rank, 0);
  EXPECT_EQ(changes_[1].since, 60);
  EXPECT_LT(changes_[1].step, 65);
}

TEST_F(StragglerDetectorTest, SlowerStillIsAnotherChangeAndSoIsLessSlow) {
  Run(0, 100, [](int rank, int64_t step) {
    if (rank == 0 || step < 20) return 1.0;
    return step < 40 ? 2.0 : step < 60 ? 4.0 : 2.0;
  });
  ASSERT_THAT(changes_, SizeIs(3));
  EXPECT_NEAR(changes_[0].factor, 2, 0.3);
  EXPECT_NEAR(changes_[1].factor, 4, 0.6);
  EXPECT_EQ(changes_[1].since, 40);
  EXPECT_NEAR(changes_[2].factor, 2, 0.3);
}

TEST_F(StragglerDetectorTest, WhoIsGivenMoreToDoIsNotSlower) {
  update_seconds_ = 0.030;
  Run(0, 30, Usual);
  micro_batches_ = {6, 2};
  watch_.BeginProgram();
  Run(30, 100, Usual);
  EXPECT_THAT(changes_, IsEmpty());
}

TEST_F(StragglerDetectorTest, WhoIsSlowerFromTheBeginningIsNamedAgainstItsPeers) {
  Run(0, 30, [](int rank, int64_t) { return rank == 1 ? 3.0 : 1.0; });
  ASSERT_THAT(changes_, SizeIs(1));
  EXPECT_EQ(changes_[0].kind, Kind::kSlowerThanPeers);
  EXPECT_EQ(changes_[0].rank, 1);
  EXPECT_NEAR(changes_[0].factor, 3, 0.3);
  EXPECT_LT(changes_[0].step, 15);
  // Its part fits its speed now, which is no change of its speed.
  micro_batches_ = {6, 2};
  watch_.BeginProgram();
  Run(30, 100, [](int rank, int64_t) { return rank == 1 ? 3.0 : 1.0; });
  EXPECT_THAT(changes_, SizeIs(1));
}

TEST_F(StragglerDetectorTest, WhoseSmallPartFitsItsSpeedIsNotNamed) {
  micro_batches_ = {6, 2};
  Run(0, 100, [](int rank, int64_t) { return rank == 1 ? 3.0 : 1.0; });
  EXPECT_THAT(changes_, IsEmpty());
}

TEST_F(StragglerDetectorTest, TheFirstStepsOfProgramsAreNotLookedAt) {
  int64_t first = 0;
  const auto first_is_slow = [&](int, int64_t step) { return step == first ? 50.0 : 1.0; };
  Run(0, 30, first_is_slow);
  for (first = 30; first < 60; first += 3) {
    watch_.BeginProgram();
    Run(first, first + 3, first_is_slow);
  }
  EXPECT_THAT(changes_, IsEmpty());
}

TEST_F(StragglerDetectorTest, ShortStepsAreLookedAtTogether) {
  micro_batch_seconds_ = 0.0002;
  update_seconds_ = 0.0001;
  const auto hiccups = [](int rank, int64_t step) { return step % 37 == 7 * rank ? 8.0 : 1.0; };
  Run(0, 3000, hiccups);
  EXPECT_THAT(changes_, IsEmpty());
  Run(3000, 3400, [&](int rank, int64_t step) { return (rank + 1) * hiccups(rank, step); });
  ASSERT_THAT(changes_, SizeIs(1));
  EXPECT_EQ(changes_[0].rank, 1);
  // Five observations of 50 ms at twice 0.9 ms a step.
  EXPECT_LT(changes_[0].step, 3000 + 5 * 28 + 1);
}

TEST_F(StragglerDetectorTest, WhatComesAndGoesIsToldLessAndLess) {
  Run(0, 20, Usual);
  Run(20, 1000, [](int rank, int64_t step) { return rank == 1 && step % 20 < 8 ? 2.0 : 1.0; });
  // 49 times slower, but only those longer than 3 and 6 steps are told.
  EXPECT_THAT(changes_, SizeIs(::testing::Le(8u)));
  EXPECT_THAT(changes_, SizeIs(::testing::Ge(2u)));
}

TEST_F(StragglerDetectorTest, StepsOfAnotherShapeHaveTheirOwnUsual) {
  for (int64_t step = 0; step < 200; ++step) {
    const bool is_long = step % 3 == 0;
    const double seconds = is_long ? 0.4 : 0.1;
    const std::vector<RankWork> ranks = {{seconds, 0, 4}, {seconds, 0, 4}};
    EXPECT_THAT(watch_.Add(step, is_long ? "64x128" : "64x32", ranks), IsEmpty()) << step;
  }
}

TEST_F(StragglerDetectorTest, SpeedsAreThoseSinceTheChange) {
  EXPECT_THAT(watch_.Speeds(), IsEmpty());
  Run(0, 40, Usual);
  ASSERT_THAT(watch_.Speeds(), SizeIs(2));
  EXPECT_NEAR(watch_.Speeds()[1].micro_batch_seconds, 0.020, 0.002);
  EXPECT_NEAR(watch_.Speeds()[1].update_seconds, 0.005, 0.0005);
  int64_t step = 40;
  while (changes_.empty() && step < 50) {
    Run(step, step + 1, [](int rank, int64_t) { return rank == 1 ? 3.0 : 1.0; });
    ++step;
  }
  EXPECT_NEAR(watch_.Speeds()[0].micro_batch_seconds, 0.020, 0.002);
  EXPECT_NEAR(watch_.Speeds()[1].micro_batch_seconds, 0.060, 0.006);
  EXPECT_NEAR(watch_.Speeds()[1].update_seconds, 0.015, 0.0015);
}

}  // namespace
}  // namespace weft
