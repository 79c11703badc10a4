#include "distributed/process/stale_watch.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class StaleWatchTest : public ::testing::Test {
 protected:
  absl::Status LookAfter(absl::Duration time, int64_t ended) {
    now_ += time;
    return watch_.Look(now_, ended);
  }
  StaleWatch watch_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(StaleWatchTest, APauseThatEndedTheLeaseIsNamed) {
  EXPECT_TRUE(LookAfter(absl::ZeroDuration(), 3).ok());
  EXPECT_TRUE(LookAfter(absl::Milliseconds(200), 3).ok());
  // The end of the lease is heard of a little later than the pause is seen.
  EXPECT_TRUE(LookAfter(absl::Milliseconds(5250), 3).ok());
  const absl::Status stale = LookAfter(absl::Milliseconds(200), 4);
  EXPECT_TRUE(absl::IsAborted(stale)) << stale;
  EXPECT_THAT(std::string(stale.message()), HasSubstr("did not run for 5.2s"));
  EXPECT_TRUE(LookAfter(absl::Milliseconds(200), 4).ok());  // said once
}

TEST_F(StaleWatchTest, AtTheSameLookToo) {
  EXPECT_TRUE(LookAfter(absl::ZeroDuration(), 0).ok());
  EXPECT_FALSE(LookAfter(absl::Seconds(4), 1).ok());
}

TEST_F(StaleWatchTest, JobsThatEndAndPausesThatEndNothingAreNone) {
  EXPECT_TRUE(LookAfter(absl::ZeroDuration(), 0).ok());
  EXPECT_TRUE(LookAfter(absl::Milliseconds(200), 1).ok());  // a job has ended
  EXPECT_TRUE(LookAfter(absl::Milliseconds(600), 2).ok());  // a busy machine
  EXPECT_TRUE(LookAfter(absl::Seconds(9), 2).ok());         // a pause without a loss
  EXPECT_TRUE(LookAfter(absl::Milliseconds(200), 2).ok());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(LookAfter(absl::Milliseconds(200), 2).ok());
  EXPECT_TRUE(LookAfter(absl::Milliseconds(200), 3).ok());  // and a job's end long after it
}

TEST_F(StaleWatchTest, TheNextPauseIsJudgedForItself) {
  EXPECT_TRUE(LookAfter(absl::ZeroDuration(), 0).ok());
  EXPECT_FALSE(LookAfter(absl::Seconds(1), 1).ok());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(LookAfter(absl::Milliseconds(200), 1).ok());
  EXPECT_TRUE(LookAfter(absl::Seconds(1), 1).ok());
  EXPECT_FALSE(LookAfter(absl::Milliseconds(200), 2).ok());
}

}  // namespace
}  // namespace weft
