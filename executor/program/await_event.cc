#include "executor/program/await_event.h"

#include "absl/strings/str_cat.h"
#include "platform/polling.h"

namespace weft {

absl::Status AwaitEvent(const Event& event, absl::Duration timeout, Clock& clock) {
  const auto is_done = [&event] { return event.Done(); };
  if (PollUntil(is_done, clock, clock.Now() + timeout)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      "a device has not come to what the host waits for within ", absl::FormatDuration(timeout)));
}

}  // namespace weft
