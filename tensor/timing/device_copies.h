// What copies from, to and within a device take.
#ifndef WEFT_TENSOR_TIMING_DEVICE_COPIES_H_
#define WEFT_TENSOR_TIMING_DEVICE_COPIES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "tensor/device.h"
#include "tensor/timing/copy_line.h"

namespace weft {

// Seconds of a copy: `seconds` + bytes / `bytes_per_second`.
struct CopyLine {
  double seconds = 0;
  double bytes_per_second = 0;
  friend bool operator==(const CopyLine&, const CopyLine&) = default;
};

// All zero on a device whose memory the host can reach: nothing is copied there.
struct DeviceCopies {
  CopyLine from_host;  // of pinned memory, one copy at a time and waited for, as by a host node
  CopyLine to_host;
  CopyLine on_device;  // of as many bytes as the largest copy, back to back; counts them once
  friend bool operator==(const DeviceCopies&, const DeviceCopies&) = default;
};

// FitLine of the copies (tensor/timing/copy_line.h); through the origin where that would have a
// copy take less than nothing, or a larger one less time. REQUIRES: two sizes at least, positive
// seconds.
CopyLine FitCopies(const std::vector<TimedCopy>& copies);

// Copies of 4 KiB to 64 MiB, less where the device may have less (a sixteenth of its limit).
// Allocates on the device and pinned memory, and frees both. Errors: those of the device.
absl::StatusOr<DeviceCopies> MeasureDeviceCopies(Device& device, Clock& clock);

}  // namespace weft

#endif  // WEFT_TENSOR_TIMING_DEVICE_COPIES_H_
