#include "platform/polling.h"

#include <algorithm>
#include <thread>

#include "platform/mutex.h"

namespace weft {
namespace {

constexpr int kEagerQuestions = 200;
// On a busy machine a yield lasts as long as another process's turn, milliseconds.
constexpr absl::Duration kEagerTime = absl::Microseconds(100);
constexpr absl::Duration kFirstPause = absl::Microseconds(20);
constexpr absl::Duration kLongestPause = absl::Milliseconds(1);
// A pause is at most this part of what was waited: so late is what has ended found.
constexpr int kPauseShare = 50;

}  // namespace

bool PollUntil(absl::FunctionRef<bool()> is_done, Clock& clock, absl::Time deadline) {
  const absl::Time begin = clock.Now();
  for (int i = 0; i < kEagerQuestions; ++i) {
    if (is_done()) return true;
    std::this_thread::yield();
    if (clock.Now() - begin > kEagerTime) break;
  }
  Mutex mutex;
  CondVar nobody_notifies;
  while (true) {
    const bool is_late = clock.Now() >= deadline;
    if (is_done()) return true;
    if (is_late) return false;
    const absl::Time now = clock.Now();
    const absl::Duration pause =
        std::clamp((now - begin) / kPauseShare, kFirstPause, kLongestPause);
    MutexLock lock(mutex);
    clock.WaitUntil(nobody_notifies, mutex, std::min(deadline, now + pause));
  }
}

}  // namespace weft
