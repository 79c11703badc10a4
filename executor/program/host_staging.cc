#include "executor/program/host_staging.h"

#include <algorithm>
#include <utility>

#include "executor/program/device_timeout.h"
#include "platform/status_macros.h"

namespace weft {

absl::Status HostStaging::Allocate(Device& device, const std::vector<int64_t>& bytes) {
  for (const int64_t operand : bytes) {
    const auto size = static_cast<size_t>(std::max<int64_t>(operand, 1));
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory, device.AllocateHostMemory(size));
    addresses_.push_back(memory->data());
    memory_.push_back(std::move(memory));
    bytes_.push_back(static_cast<size_t>(operand));
  }
  return absl::OkStatus();
}

absl::Status HostStaging::CopyToHost(const HostOperands& operands, Device& device,
                                     Stream& stream) const {
  for (size_t i = 0; i < operands.read; ++i) {
    WEFT_RETURN_IF_ERROR(
        device.CopyToHost(stream, operands.addresses[i], addresses_[i], bytes_[i]));
  }
  return absl::OkStatus();
}

absl::Status HostStaging::Run(const HostOperands& operands, Device& device, Stream& stream,
                              Operation operation) const {
  if (operands.read > 0) {
    WEFT_RETURN_IF_ERROR(CopyToHost(operands, device, stream));
    WEFT_RETURN_IF_ERROR(stream.Synchronize(kDeviceTimeout));
  }
  WEFT_RETURN_IF_ERROR(operation(addresses_.data()));
  for (size_t i = 0; i < operands.written; ++i) {
    const size_t operand = operands.first_written + i;
    WEFT_RETURN_IF_ERROR(device.CopyFromHost(stream, addresses_[operand],
                                             operands.addresses[operand], bytes_[operand]));
  }
  return absl::OkStatus();
}

}  // namespace weft
