#include "tools/sweep/rungs.h"

#include <cmath>
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

// An epoch of `steps` batches of 10 whose last has 3.
int64_t ShortLast(int64_t step, int64_t steps) { return step % steps == steps - 1 ? 3 : 10; }

TEST(Rungs, AreAtAnEighthAQuarterHalfAndAll) {
  EXPECT_THAT(RungSteps(80, [](int64_t) { return 10; }), ElementsAre(10, 20, 40, 80));
  EXPECT_EQ(RungPart(0), 0.125);
  EXPECT_EQ(RungPart(kRungs - 1), 1);
}

// 100 samples: 12.5, 25 and 50 are first seen in steps 2, 3 and 5.
TEST(Rungs, AreTheFirstStepsWithTheirPart) {
  EXPECT_THAT(RungSteps(10, [](int64_t) { return 10; }), ElementsAre(2, 3, 5, 10));
}

// Whatever the batch, the samples at a rung differ by less than a batch.
TEST(Rungs, OfOtherBatchesHaveTheSameSamples) {
  for (const int64_t batch : {1, 7, 32, 50}) {
    const auto batch_of = [batch](int64_t) { return batch; };
    const int64_t steps = (3200 + batch - 1) / batch;
    const auto rungs = RungSteps(steps, batch_of);
    const auto all = static_cast<double>(SamplesOf(steps, batch_of));
    for (int rung = 0; rung < kRungs; ++rung) {
      const auto seen = static_cast<double>(SamplesOf(rungs[static_cast<size_t>(rung)], batch_of));
      EXPECT_GE(seen, all * RungPart(rung));
      EXPECT_LT(seen, all * RungPart(rung) + static_cast<double>(batch));
    }
  }
}

TEST(Rungs, CountShortBatches) {
  const auto batch_of = [](int64_t step) { return ShortLast(step, 4); };
  EXPECT_EQ(SamplesOf(8, batch_of), 66);
  // An eighth is 8.25, a quarter 16.5, half 33.
  EXPECT_THAT(RungSteps(8, batch_of), ElementsAre(1, 2, 4, 8));
}

TEST(Rungs, OfShortTrialsAreOne) {
  EXPECT_THAT(RungSteps(1, [](int64_t) { return 10; }), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(RungSteps(3, [](int64_t) { return 10; }), ElementsAre(1, 1, 2, 3));
}

TEST(StepsForBatch, SeesAsMuchData) {
  EXPECT_EQ(StepsForBatch(100, 32, 32), 100);
  EXPECT_EQ(StepsForBatch(100, 32, 64), 50);
  EXPECT_EQ(StepsForBatch(100, 32, 48), 67);  // 66.7
  EXPECT_EQ(StepsForBatch(1, 1, 1000), 1);
  EXPECT_EQ(StepsForBatch(int64_t{1} << 60, 1 << 20, 1 << 21), int64_t{1} << 59);
}

TEST(LossWindow, IsTheMeanOfTheLastSamples) {
  LossWindow window(20);
  EXPECT_TRUE(std::isnan(window.Mean()));
  window.Add(8, 10);
  EXPECT_EQ(window.Mean(), 8);
  window.Add(4, 10);
  EXPECT_EQ(window.Mean(), 6);
  window.Add(2, 10);
  EXPECT_EQ(window.Mean(), 3);  // of 4 and 2
}

TEST(LossWindow, CountsStepsByTheirSamples) {
  LossWindow window(100);
  window.Add(1, 30);
  window.Add(5, 10);
  EXPECT_EQ(window.Mean(), (30.0 * 1 + 10 * 5) / 40);
}

TEST(LossWindow, KeepsALargeStep) {
  LossWindow window(0);
  window.Add(1, 30);
  window.Add(5, 30);
  EXPECT_EQ(window.Mean(), 5);
}

}  // namespace
}  // namespace weft
