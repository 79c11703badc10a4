// Finds a device of this process by what a cluster file or a flag says.
#ifndef WEFT_TENSOR_DEVICE_LOOKUP_H_
#define WEFT_TENSOR_DEVICE_LOOKUP_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensor/device.h"

namespace weft {

// A device of a process, as cluster files and flags name it.
struct DeviceId {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

// "cpu", "cuda" or "cuda:1"; without a number it is 0. InvalidArgument with what is expected. Says
// nothing about whether this build has the device.
absl::StatusOr<DeviceId> ParseDevice(absl::string_view text);

// "cpu:0", "cuda:1".
std::string DeviceName(DeviceKind kind, int index);

// The device, which lives for ever; never another one instead. Unimplemented where this build has
// no device of the kind, naming it. Thread-safe.
absl::StatusOr<Device*> FindDevice(DeviceKind kind, int index);

}  // namespace weft

#endif  // WEFT_TENSOR_DEVICE_LOOKUP_H_
