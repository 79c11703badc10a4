// How long a device takes for work, from many pieces of it between two waits for the stream.
#ifndef WEFT_TENSOR_TIMING_DEVICE_TIMER_H_
#define WEFT_TENSOR_TIMING_DEVICE_TIMER_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "tensor/device.h"

namespace weft {

// When a measurement is long enough, and how it is made.
struct DeviceTimerOptions {
  // A round takes at least so long, and at least so many times what a wait for the stream takes.
  double min_seconds = 2e-3;
  double waits = 100;
  int rounds = 3;  // of which the median counts, after one that does not
  // The work may be part of a recording (Stream::BeginRecording).
  bool can_record = true;
};

// Seconds of one `enqueue()`, which puts one piece of work into `stream`, while the stream has
// always more of it: launches that the host makes slower than the device runs them are recorded and
// repeated where the device can record. What came before in the stream has run when this begins,
// and all of it when it returns, also with an error (but where a wait takes ten minutes). Uses the
// stream and `clock` alone; one thread. Errors: those of `enqueue` and of the stream;
// DeadlineExceeded where a wait takes ten minutes.
absl::StatusOr<double> SecondsOnDevice(Stream& stream, Clock& clock,
                                       absl::FunctionRef<absl::Status()> enqueue,
                                       const DeviceTimerOptions& options = {});

}  // namespace weft

#endif  // WEFT_TENSOR_TIMING_DEVICE_TIMER_H_
