#include "platform/mutex.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace weft {

void CondVar::Wait(Mutex& mutex) {
  std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
  condition_.wait(lock);
  lock.release();
}

bool CondVar::WaitUntil(Mutex& mutex, absl::Time deadline) {
  // Longer than a century overflows the library's clocks; nothing waits that long on purpose.
  constexpr absl::Duration kForever = absl::Hours(24 * 365 * 100);
  const absl::Duration left = deadline - absl::Now();
  if (left >= kForever) {
    Wait(mutex);
    return true;
  }
  const auto steady_deadline = std::chrono::steady_clock::now() +
                               absl::ToChronoNanoseconds(std::max(left, absl::ZeroDuration()));
  std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
  const std::cv_status status = condition_.wait_until(lock, steady_deadline);
  lock.release();
  return status == std::cv_status::no_timeout;
}

}  // namespace weft
