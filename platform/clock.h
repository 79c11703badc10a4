// Clock: the source of all time, and waits that end at a time.
#ifndef WEFT_PLATFORM_CLOCK_H_
#define WEFT_PLATFORM_CLOCK_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "platform/mutex.h"

namespace weft {

// Where all time comes from: what the time is, and waits that end at a time. Code takes a Clock&
// and borrows it; tests pass testing::FakeClock and turn it. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // The time of day; can jump.
  virtual absl::Time Now() = 0;

  // Nanoseconds since an arbitrary moment; never goes back. For durations and traces.
  virtual int64_t MonotonicNanos() = 0;

  // Waits on `condition` until it is notified or the clock reaches `deadline`. Returns false when
  // the deadline has passed. Can return true for no reason: loop over the condition, like this:
  //   while (!ready) {
  //     if (!clock.WaitUntil(changed, mutex, deadline)) return absl::DeadlineExceededError(...);
  //   }
  virtual bool WaitUntil(CondVar& condition, Mutex& mutex, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;
};

// The machine's clock.
Clock& RealClock();

}  // namespace weft

#endif  // WEFT_PLATFORM_CLOCK_H_
