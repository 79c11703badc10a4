#ifndef WEFT_PLATFORM_TESTING_FAKE_CLOCK_H_
#define WEFT_PLATFORM_TESTING_FAKE_CLOCK_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/mutex.h"

namespace weft::testing {

// A clock that stands still until a test turns it. Threads that wait through it wake when their
// deadline is reached by Advance, or when somebody notifies their condition variable. Thread-safe.
//
//   FakeClock clock;
//   std::thread waiter([&] { ... clock.WaitUntil(changed, mutex, clock.Now() + absl::Seconds(5));
//   }); clock.AwaitWaiters(1);             // the waiter is now asleep, or about to be
//   clock.Advance(absl::Seconds(5));   // its wait returns false
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch());

  // All waits must have ended.
  ~FakeClock() override;

  absl::Time Now() override ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t MonotonicNanos() override ABSL_LOCKS_EXCLUDED(mutex_);
  bool WaitUntil(CondVar& condition, Mutex& mutex, absl::Time deadline) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_LOCKS_EXCLUDED(mutex_);

  // Turns the clock forward (never back) and wakes the waits whose deadline it reaches. The caller
  // must not hold a mutex that any waiter waits with.
  void Advance(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until at least `count` threads wait through this clock.
  void AwaitWaiters(int count) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // One call of WaitUntil; lives on its stack.
  struct Waiter {
    CondVar* condition;
    Mutex* mutex;
    absl::Time deadline;
    bool being_woken = false;  // Advance is about to lock `mutex`: the waiter must not leave yet.
  };

  const absl::Time start_;
  Mutex mutex_;
  CondVar changed_;  // Waiters come, or Advance has let go of one.
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter*> waiters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::testing

#endif  // WEFT_PLATFORM_TESTING_FAKE_CLOCK_H_
