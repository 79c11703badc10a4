#include "executor/program/host_staging.h"

#include <algorithm>
#include <utility>

#include "executor/program/device_timeout.h"
#include "platform/status_macros.h"

namespace weft {

absl::Status HostStaging::Allocate(const std::vector<int64_t>& bytes) {
  for (const int64_t operand : bytes) {
    const auto size = static_cast<size_t>(std::max<int64_t>(operand, 1));
    // The one place where the program means the host's memory, whatever its device.
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory, CpuDevice().Allocate(size));
    addresses_.push_back(memory->data());
    memory_.push_back(std::move(memory));
    bytes_.push_back(static_cast<size_t>(operand));
  }
  return absl::OkStatus();
}

absl::Status HostStaging::Run(const HostOperands& operands, Device& device, Stream& stream,
                              Operation operation) const {
  for (size_t i = 0; operands.reads && i < operands.count; ++i) {
    WEFT_RETURN_IF_ERROR(
        device.CopyToHost(stream, operands.addresses[i], addresses_[i], bytes_[i]));
  }
  WEFT_RETURN_IF_ERROR(stream.Synchronize(kDeviceTimeout));
  WEFT_RETURN_IF_ERROR(operation(addresses_.data()));
  if (!operands.writes) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(
      device.CopyFromHost(stream, addresses_[0], operands.addresses[0], bytes_[0]));
  return stream.Synchronize(kDeviceTimeout);
}

}  // namespace weft
