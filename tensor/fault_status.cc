#include "tensor/fault_status.h"

#include "absl/strings/str_cat.h"

namespace weft {

absl::Status FaultStatus(const DeviceFault& fault) {
  if (fault.is_set == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(fault.source == nullptr ? "a kernel of the device" : fault.source, " is ",
                   fault.value, " at element ", fault.position, ", so that it is not in [",
                   fault.low, ", ", fault.high, "); check the data that the model is given"));
}

}  // namespace weft
