// How long a program waits for its device.
#ifndef WEFT_EXECUTOR_PROGRAM_DEVICE_TIMEOUT_H_
#define WEFT_EXECUTOR_PROGRAM_DEVICE_TIMEOUT_H_

#include "absl/time/time.h"

namespace weft {

// Long enough for any kernel; a stream that takes longer hangs.
inline constexpr absl::Duration kDeviceTimeout = absl::Minutes(10);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_DEVICE_TIMEOUT_H_
