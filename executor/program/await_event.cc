#include "executor/program/await_event.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "platform/mutex.h"

namespace weft {
namespace {

// As a rule what is waited for ends within microseconds.
constexpr int kEagerQuestions = 200;
constexpr absl::Duration kFirstPause = absl::Microseconds(20);
constexpr absl::Duration kLongestPause = absl::Milliseconds(1);

}  // namespace

absl::Status AwaitEvent(const Event& event, absl::Duration timeout, Clock& clock) {
  for (int i = 0; i < kEagerQuestions; ++i) {
    if (event.Done()) return absl::OkStatus();
    std::this_thread::yield();
  }
  const absl::Time deadline = clock.Now() + timeout;
  Mutex mutex;
  CondVar nobody_notifies;
  absl::Duration pause = kFirstPause;
  while (true) {
    const bool is_late = clock.Now() >= deadline;
    if (event.Done()) return absl::OkStatus();
    if (is_late) {
      return absl::DeadlineExceededError(
          absl::StrCat("a device has not come to what the host waits for within ",
                       absl::FormatDuration(timeout)));
    }
    MutexLock lock(mutex);
    clock.WaitUntil(nobody_notifies, mutex, std::min(deadline, clock.Now() + pause));
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace weft
