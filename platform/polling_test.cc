#include "platform/polling.h"

#include <algorithm>
#include <cstdint>

#include "gtest/gtest.h"

namespace weft {
namespace {

// A clock that jumps to where somebody waits for.
class JumpingClock final : public Clock {
 public:
  absl::Time Now() override { return now_; }
  int64_t MonotonicNanos() override { return absl::ToUnixNanos(now_); }
  bool WaitUntil(CondVar&, Mutex&, absl::Time deadline) override {
    ++waits;
    now_ = deadline;
    return false;
  }
  absl::Duration waited() const { return now_ - absl::UnixEpoch(); }
  int waits = 0;

 private:
  absl::Time now_ = absl::UnixEpoch();
};

// Whether something that is done so long after the epoch is found done before the deadline.
bool Found(JumpingClock& clock, absl::Duration done, absl::Duration deadline,
           int* questions = nullptr) {
  return PollUntil(
      [&] {
        if (questions != nullptr) ++*questions;
        return clock.Now() >= absl::UnixEpoch() + done;
      },
      clock, absl::UnixEpoch() + deadline);
}

TEST(PollUntilTest, WhatIsDoneIsAskedOnce) {
  JumpingClock clock;
  int questions = 0;
  EXPECT_TRUE(Found(clock, absl::ZeroDuration(), absl::Seconds(1), &questions));
  EXPECT_EQ(questions, 1);
  EXPECT_EQ(clock.waits, 0);
}

// Where each yield is the turn of another process, few are made.
TEST(PollUntilTest, OnABusyMachineItPausesInsteadOfYielding) {
  class BusyClock final : public Clock {
   public:
    absl::Time Now() override { return now_ += absl::Milliseconds(3); }
    int64_t MonotonicNanos() override { return absl::ToUnixNanos(now_); }
    bool WaitUntil(CondVar&, Mutex&, absl::Time) override {
      ++waits;
      return false;
    }
    int waits = 0;

   private:
    absl::Time now_ = absl::UnixEpoch();
  };
  BusyClock clock;
  int questions = 0;
  EXPECT_TRUE(PollUntil([&] { return ++questions == 50; }, clock, absl::InfiniteFuture()));
  EXPECT_GE(clock.waits, 45);
}

// 50 pauses of 20 us, some 200 that grow, and then 50 of a millisecond.
TEST(PollUntilTest, PausesGrowToAMillisecond) {
  JumpingClock clock;
  EXPECT_TRUE(Found(clock, absl::Milliseconds(100), absl::Seconds(1)));
  EXPECT_GE(clock.waited(), absl::Milliseconds(100));
  EXPECT_LE(clock.waited(), absl::Milliseconds(101));
  EXPECT_GE(clock.waits, 280);
  EXPECT_LE(clock.waits, 310);
}

TEST(PollUntilTest, WhatHasEndedIsFoundWithinAFiftieth) {
  for (int micros = 100; micros < 100'000; micros = micros * 5 / 4) {
    const absl::Duration done = absl::Microseconds(micros);
    JumpingClock clock;
    EXPECT_TRUE(Found(clock, done, absl::Seconds(1)));
    EXPECT_LE(clock.waited(), done + std::max(done / 50, absl::Microseconds(20))) << done;
  }
}

TEST(PollUntilTest, EndsAtTheDeadline) {
  JumpingClock clock;
  EXPECT_FALSE(Found(clock, absl::Hours(1), absl::Microseconds(2500)));
  EXPECT_EQ(clock.waited(), absl::Microseconds(2500));
}

TEST(PollUntilTest, IsAskedOnceMoreAfterTheDeadline) {
  JumpingClock clock;
  EXPECT_TRUE(Found(clock, absl::Microseconds(2500), absl::Microseconds(2500)));
}

TEST(PollUntilTest, ADeadlineThatHasPassedStillAsks) {
  JumpingClock clock;
  int questions = 0;
  EXPECT_FALSE(Found(clock, absl::Hours(1), -absl::Seconds(1), &questions));
  EXPECT_GT(questions, 0);
  EXPECT_EQ(clock.waits, 0);
}

}  // namespace
}  // namespace weft
