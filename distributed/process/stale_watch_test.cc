#include "distributed/process/stale_watch.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class StaleWatchTest : public ::testing::Test {
 protected:
  absl::Status LookAfter(absl::Duration time) {
    now_ += time;
    return watch_.Look(now_, lost_);
  }
  // A lease is lost so long before the next look.
  absl::Status LoseAndLookAfter(absl::Duration time, absl::Duration before) {
    lost_ = now_ + time - before;
    return LookAfter(time);
  }
  StaleWatch watch_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  absl::Time lost_ = absl::InfinitePast();
};

TEST_F(StaleWatchTest, APauseThatEndedTheLeaseIsNamed) {
  EXPECT_TRUE(LookAfter(absl::ZeroDuration()).ok());
  EXPECT_TRUE(LookAfter(absl::Milliseconds(200)).ok());
  // The end of the lease is heard of a little later than the pause is seen.
  EXPECT_TRUE(LookAfter(absl::Milliseconds(5250)).ok());
  const absl::Status stale = LoseAndLookAfter(absl::Milliseconds(200), absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsAborted(stale)) << stale;
  EXPECT_THAT(std::string(stale.message()), HasSubstr("did not run for 5.2s"));
  EXPECT_TRUE(LookAfter(absl::Milliseconds(200)).ok());  // said once
}

TEST_F(StaleWatchTest, AtTheSameLookToo) {
  EXPECT_TRUE(LookAfter(absl::ZeroDuration()).ok());
  EXPECT_FALSE(LoseAndLookAfter(absl::Seconds(4), absl::Milliseconds(1)).ok());
}

TEST_F(StaleWatchTest, JobsThatEndAndPausesThatEndNothingAreNone) {
  EXPECT_TRUE(LookAfter(absl::ZeroDuration()).ok());
  // A job has ended; then a busy machine.
  EXPECT_TRUE(LoseAndLookAfter(absl::Milliseconds(200), absl::Milliseconds(100)).ok());
  EXPECT_TRUE(LoseAndLookAfter(absl::Milliseconds(600), absl::Milliseconds(100)).ok());
  EXPECT_TRUE(LookAfter(absl::Seconds(9)).ok());  // a pause without a loss
  for (int i = 0; i < 21; ++i) EXPECT_TRUE(LookAfter(absl::Milliseconds(200)).ok());
  // And a job's end long after it.
  EXPECT_TRUE(LoseAndLookAfter(absl::Milliseconds(200), absl::Milliseconds(100)).ok());
}

// A job's coordinator was killed; the worker was taken up by another one, and stopped for a moment,
// all since the last look. It took the first loss for one of the pause, and ended.
TEST_F(StaleWatchTest, WhatWasLostJustBeforeAPauseIsNone) {
  EXPECT_TRUE(LookAfter(absl::ZeroDuration()).ok());
  EXPECT_TRUE(LoseAndLookAfter(absl::Milliseconds(1400), absl::Milliseconds(1300)).ok());
  EXPECT_TRUE(LookAfter(absl::Milliseconds(200)).ok());
  EXPECT_FALSE(LoseAndLookAfter(absl::Milliseconds(200), absl::Milliseconds(100)).ok());
}

TEST_F(StaleWatchTest, TheNextPauseIsJudgedForItself) {
  EXPECT_TRUE(LookAfter(absl::ZeroDuration()).ok());
  EXPECT_FALSE(LoseAndLookAfter(absl::Seconds(1), absl::Milliseconds(10)).ok());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(LookAfter(absl::Milliseconds(200)).ok());
  EXPECT_TRUE(LookAfter(absl::Seconds(1)).ok());
  EXPECT_FALSE(LoseAndLookAfter(absl::Milliseconds(200), absl::Milliseconds(100)).ok());
}

}  // namespace
}  // namespace weft
