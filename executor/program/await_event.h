// A wait of the host for a point in a stream's work. Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_AWAIT_EVENT_H_
#define WEFT_EXECUTOR_PROGRAM_AWAIT_EVENT_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "tensor/device.h"

namespace weft {

// Returns when the event is done, or DeadlineExceeded after `timeout` of the clock. Asks as
// PollUntil does (platform/polling.h): later work of the stream is not waited for.
absl::Status AwaitEvent(const Event& event, absl::Duration timeout, Clock& clock = RealClock());

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_AWAIT_EVENT_H_
