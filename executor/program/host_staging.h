// HostStaging: host memory that stands in for buffers which the host cannot reach. Internal to
// executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_HOST_STAGING_H_
#define WEFT_EXECUTOR_PROGRAM_HOST_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tensor/device.h"

namespace weft {

// What the communicator, the guard or a kernel of the CPU touches of an instruction, from the host.
struct HostOperands {
  void* const* addresses = nullptr;  // on the device
  size_t count = 0;
  size_t read = 0;           // so many of them, the first ones
  size_t first_written = 0;  // `written` of them from there on
  size_t written = 0;
};

// Of one instruction, which runs at most once a step. Steps end when their streams are drained: so
// the memory is free whenever the instruction runs. Empty where the host reaches the device's
// memory.
class HostStaging {
 public:
  absl::Status Allocate(Device& device, const std::vector<int64_t>& bytes);

  // Puts the copies of what the host reads into the stream.
  absl::Status CopyToHost(const HostOperands& operands, Device& device, Stream& stream) const;
  // Runs `operation` on the host's memory. The stream is waited for where the host reads what it
  // made, and nowhere else: what the host writes is copied back in the stream.
  using Operation = absl::FunctionRef<absl::Status(void* const*)>;
  absl::Status Run(const HostOperands& operands, Device& device, Stream& stream,
                   Operation operation) const;
  void* address(size_t operand) const { return addresses_[operand]; }

 private:
  std::vector<std::shared_ptr<Buffer>> memory_;
  std::vector<void*> addresses_;
  std::vector<size_t> bytes_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_HOST_STAGING_H_
