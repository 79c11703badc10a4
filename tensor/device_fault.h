// DeviceFault: how a kernel that runs later, on a device, says that its data is wrong.
#ifndef WEFT_TENSOR_DEVICE_FAULT_H_
#define WEFT_TENSOR_DEVICE_FAULT_H_

#include <cstdint>

namespace weft {

// Plain values: lies in memory that the device writes and the host reads. All zero: no fault. The
// first fault stays; who comes later finds `is_set` and writes nothing.
struct DeviceFault {
  int32_t is_set = 0;
  int32_t reserved = 0;
  // `value`, found at element `position` of its tensor, is not in [low, high).
  int64_t value = 0;
  int64_t position = 0;
  int64_t low = 0;
  int64_t high = 0;
  // Text of the host, "Gather 'embed': index"; the kernel that owns it outlives its work.
  const char* source = nullptr;
};

}  // namespace weft

#endif  // WEFT_TENSOR_DEVICE_FAULT_H_
