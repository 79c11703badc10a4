#include "platform/testing/fake_clock.h"

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "platform/mutex.h"

namespace weft::testing {
namespace {

// A thread that waits until `deadline` or until Finish, whichever comes first.
class WaitingThread {
 public:
  WaitingThread(Clock& clock, absl::Time deadline)
      : thread_([this, &clock, deadline] {
          MutexLock lock(mutex_);
          while (!finished_) {
            if (!clock.WaitUntil(changed_, mutex_, deadline)) {
              timed_out_ = true;
              return;
            }
          }
        }) {}

  void Finish() {
    MutexLock lock(mutex_);
    finished_ = true;
    changed_.NotifyAll();
  }

  // Joins; says whether the deadline ended the wait.
  bool TimedOut() {
    thread_.join();
    MutexLock lock(mutex_);
    return timed_out_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool timed_out_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses the members above.
};

TEST(FakeClock, StandsStillUntilTurned) {
  FakeClock clock(absl::UnixEpoch() + absl::Hours(1));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Hours(1));
  EXPECT_EQ(clock.MonotonicNanos(), 0);
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Hours(1) + absl::Seconds(2));
  EXPECT_EQ(clock.MonotonicNanos(), 2000000000);
}

TEST(FakeClock, NeverGoesBack) {
  FakeClock clock;
  clock.Advance(absl::Seconds(-1));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch());
}

TEST(FakeClock, WaitReturnsAtOnceAfterTheDeadline) {
  FakeClock clock;
  Mutex mutex;
  CondVar condition;
  MutexLock lock(mutex);
  EXPECT_FALSE(clock.WaitUntil(condition, mutex, clock.Now()));
}

TEST(FakeClock, AdvanceEndsTheWaitsItReaches) {
  FakeClock clock;
  WaitingThread early(clock, clock.Now() + absl::Seconds(5));
  WaitingThread late(clock, clock.Now() + absl::Seconds(50));
  clock.AwaitWaiters(2);
  clock.Advance(absl::Seconds(5));
  EXPECT_TRUE(early.TimedOut());
  late.Finish();
  EXPECT_FALSE(late.TimedOut());
}

TEST(FakeClock, NotificationEndsAWaitBeforeItsDeadline) {
  FakeClock clock;
  WaitingThread waiter(clock, absl::InfiniteFuture());
  clock.AwaitWaiters(1);
  waiter.Finish();
  EXPECT_FALSE(waiter.TimedOut());
}

TEST(FakeClock, WaitersThatShareOneMutexAllWake) {
  FakeClock clock;
  Mutex mutex;
  CondVar condition;
  int woken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      MutexLock lock(mutex);
      while (clock.WaitUntil(condition, mutex, absl::UnixEpoch() + absl::Seconds(1 + i % 2))) {
      }
      ++woken;
    });
  }
  clock.AwaitWaiters(8);
  clock.Advance(absl::Seconds(1));
  clock.Advance(absl::Seconds(1));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(woken, 8);
}

TEST(FakeClock, WaiterMayDieAtOnceAfterItsWait) {
  FakeClock clock;
  for (int i = 0; i < 200; ++i) {
    std::optional<WaitingThread> waiter(std::in_place, clock, clock.Now() + absl::Seconds(1));
    clock.AwaitWaiters(1);
    std::thread turner([&clock] { clock.Advance(absl::Seconds(1)); });
    waiter->Finish();
    waiter->TimedOut();
    waiter.reset();
    turner.join();
  }
}

TEST(RealClock, GoesForward) {
  Clock& clock = RealClock();
  const absl::Time now = clock.Now();
  EXPECT_GT(now, absl::FromCivil(absl::CivilYear(2020), absl::UTCTimeZone()));
  const int64_t before = clock.MonotonicNanos();
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  while (clock.WaitUntil(never, mutex, now + absl::Milliseconds(5))) {
  }
  EXPECT_GE(clock.Now(), now + absl::Milliseconds(5));
  EXPECT_GT(clock.MonotonicNanos(), before);
}

}  // namespace
}  // namespace weft::testing
