#include "platform/clock.h"

#include <chrono>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "platform/mutex.h"

namespace weft {
namespace {

class SystemClock final : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }

  int64_t MonotonicNanos() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  bool WaitUntil(CondVar& condition, Mutex& mutex, absl::Time deadline) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return condition.WaitUntil(mutex, deadline);
  }
};

}  // namespace

Clock& RealClock() {
  static SystemClock* const clock = new SystemClock;  // Never destroyed: threads may outlive main.
  return *clock;
}

}  // namespace weft
