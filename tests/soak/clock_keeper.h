// ClockKeeper: turns a fake clock while nothing else happens.
#ifndef WEFT_TESTS_SOAK_CLOCK_KEEPER_H_
#define WEFT_TESTS_SOAK_CLOCK_KEEPER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "platform/mutex.h"
#include "platform/testing/fake_clock.h"

namespace weft::testing {

// While a run goes on, a thread of this object looks at a count of what happens. When the count
// stands still, everybody waits, and the clock is turned by half a second. When so much virtual
// time has passed, the run hangs: `end` is called, once. Borrows the clock and what the calls
// capture.
class ClockKeeper {
 public:
  ClockKeeper(FakeClock& clock, std::function<int64_t()> count, absl::Duration longest,
              std::function<void()> end);
  ClockKeeper(const ClockKeeper&) = delete;
  ClockKeeper& operator=(const ClockKeeper&) = delete;
  ~ClockKeeper();

  bool has_ended_it() const { return has_ended_it_.load(); }
  // That it has turned the clock by.
  absl::Duration turned();

 private:
  void Keep();

  FakeClock& clock_;
  const std::function<int64_t()> count_;
  const absl::Duration longest_;
  const std::function<void()> end_;
  std::atomic<bool> has_ended_it_{false};
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration turned_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SOAK_CLOCK_KEEPER_H_
