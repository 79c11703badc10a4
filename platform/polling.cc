#include "platform/polling.h"

#include <algorithm>
#include <thread>

#include "platform/mutex.h"

namespace weft {
namespace {

constexpr int kEagerQuestions = 200;
constexpr absl::Duration kFirstPause = absl::Microseconds(20);
constexpr absl::Duration kLongestPause = absl::Milliseconds(1);

}  // namespace

bool PollUntil(absl::FunctionRef<bool()> is_done, Clock& clock, absl::Time deadline) {
  for (int i = 0; i < kEagerQuestions; ++i) {
    if (is_done()) return true;
    std::this_thread::yield();
  }
  Mutex mutex;
  CondVar nobody_notifies;
  absl::Duration pause = kFirstPause;
  while (true) {
    const bool is_late = clock.Now() >= deadline;
    if (is_done()) return true;
    if (is_late) return false;
    MutexLock lock(mutex);
    clock.WaitUntil(nobody_notifies, mutex, std::min(deadline, clock.Now() + pause));
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace weft
