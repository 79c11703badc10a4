#include "executor/program/await_event.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

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
  int waits = 0;

 private:
  absl::Time now_ = absl::UnixEpoch();
};

// Done at a time of the clock.
class EventAt final : public Event {
 public:
  EventAt(Clock& clock, absl::Duration at) : clock_(clock), at_(clock.Now() + at) {}
  bool Done() const override {
    ++questions;
    return clock_.Now() >= at_;
  }
  mutable int questions = 0;

 private:
  Clock& clock_;
  const absl::Time at_;
};

TEST(AwaitEventTest, WhatIsDoneIsNotWaitedFor) {
  JumpingClock clock;
  const EventAt event(clock, absl::ZeroDuration());
  EXPECT_TRUE(AwaitEvent(event, absl::Seconds(1), clock).ok());
  EXPECT_EQ(event.questions, 1);
  EXPECT_EQ(clock.waits, 0);
}

TEST(AwaitEventTest, WaitsAtMostAMillisecondTooLong) {
  JumpingClock clock;
  const EventAt event(clock, absl::Milliseconds(100));
  EXPECT_TRUE(AwaitEvent(event, absl::Seconds(1), clock).ok());
  const absl::Duration waited = clock.Now() - absl::UnixEpoch();
  EXPECT_GE(waited, absl::Milliseconds(100));
  EXPECT_LE(waited, absl::Milliseconds(101));
  EXPECT_LE(clock.waits,
            400);  // each a fiftieth longer than the one before, then a thousand a second
}

TEST(AwaitEventTest, ADeviceThatStandsStillIsGivenUpAtTheTimeout) {
  JumpingClock clock;
  const EventAt event(clock, absl::Hours(1));
  const absl::Status status = AwaitEvent(event, absl::Milliseconds(2500), clock);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("within 2.5s"));
  EXPECT_EQ(clock.Now() - absl::UnixEpoch(), absl::Milliseconds(2500));
}

// It is asked once more after the last wait.
TEST(AwaitEventTest, WhatIsDoneAtTheTimeoutIsInTime) {
  JumpingClock clock;
  const EventAt event(clock, absl::Milliseconds(2500));
  EXPECT_TRUE(AwaitEvent(event, absl::Milliseconds(2500), clock).ok());
}

}  // namespace
}  // namespace weft
