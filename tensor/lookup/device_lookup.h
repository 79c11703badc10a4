// Finds a device of this process by what a cluster file or a flag says.
#ifndef WEFT_TENSOR_LOOKUP_DEVICE_LOOKUP_H_
#define WEFT_TENSOR_LOOKUP_DEVICE_LOOKUP_H_

#include <string>

#include "absl/status/statusor.h"
#include "tensor/device.h"

namespace weft {

// The device, which lives for ever; never another one instead. A CUDA device is set up by the first
// call that finds it usable. Unimplemented where this build has no device of the kind; else the
// errors of SetUpCudaCard (tensor/cuda/cuda_setup.h), with what was found, what was needed and what
// to do. Each names the device. Thread-safe.
absl::StatusOr<Device*> FindDevice(DeviceKind kind, int index);

// Whether FindDevice would give it, as far as can be told without setting it up: for who asks about
// devices that others use. The same errors. Thread-safe.
absl::Status CheckDevice(DeviceKind kind, int index);

// What it is, for people: "NVIDIA L4, compute capability 8.9"; "" where there is no more to say
// than its name, and where it cannot be used.
std::string DescribeDevice(DeviceKind kind, int index);

}  // namespace weft

#endif  // WEFT_TENSOR_LOOKUP_DEVICE_LOOKUP_H_
