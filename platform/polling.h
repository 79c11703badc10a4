// Waits for what nobody notifies of: it has to be asked.
#ifndef WEFT_PLATFORM_POLLING_H_
#define WEFT_PLATFORM_POLLING_H_

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "platform/clock.h"

namespace weft {

// Asks `is_done` until it says so, and returns true; false when `deadline` of the clock has passed
// and it said no once more after that. Asks without a pause at first, since what a device is given
// ends within microseconds as a rule. Later pauses are a fiftieth of what was waited, 20 us to 1
// ms: a device that works for 5 ms is idle for 0.1 ms at most before it is seen. Called by any
// thread; `is_done` is called by that thread alone.
bool PollUntil(absl::FunctionRef<bool()> is_done, Clock& clock, absl::Time deadline);

}  // namespace weft

#endif  // WEFT_PLATFORM_POLLING_H_
