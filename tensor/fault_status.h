// What a DeviceFault says, as a status.
#ifndef WEFT_TENSOR_FAULT_STATUS_H_
#define WEFT_TENSOR_FAULT_STATUS_H_

#include "absl/status/status.h"
#include "tensor/device_fault.h"

namespace weft {

// OK where nothing was reported; else InvalidArgument with source, value, position and range. The
// caller has made sure that the device does not write the fault meanwhile.
absl::Status FaultStatus(const DeviceFault& fault);

}  // namespace weft

#endif  // WEFT_TENSOR_FAULT_STATUS_H_
