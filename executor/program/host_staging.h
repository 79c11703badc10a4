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

// What the communicator or the input source touches of an instruction, from the host.
struct HostOperands {
  void* const* addresses = nullptr;  // on the device
  size_t count = 0;
  bool reads = false;   // all of them
  bool writes = false;  // the first one
};

// Of one instruction. Empty where the host reaches the device's memory.
class HostStaging {
 public:
  // In memory of the host: it is its own device.
  absl::Status Allocate(const std::vector<int64_t>& bytes);

  // Runs `operation` on the host's memory, with the stream drained on both sides: what it reads is
  // copied there before, what it writes is copied back.
  using Operation = absl::FunctionRef<absl::Status(void* const*)>;
  absl::Status Run(const HostOperands& operands, Device& device, Stream& stream,
                   Operation operation) const;

 private:
  std::vector<std::shared_ptr<Buffer>> memory_;
  std::vector<void*> addresses_;
  std::vector<size_t> bytes_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_HOST_STAGING_H_
