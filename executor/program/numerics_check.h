// Looks for the first node that makes a NaN or an infinity. Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_
#define WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_

#include <span>

#include "absl/status/status.h"
#include "executor/lowering/lowered_step.h"
#include "ops/memory_work.h"
#include "tensor/device.h"

namespace weft {

// After a kernel has been put into `stream`: looks at its floating-point outputs (on the device;
// null: not wanted) and waits for that. `work` is the device's. OutOfRange naming output and
// element.
absl::Status CheckOutputsFinite(std::span<void* const> outputs, const InstructionInfo& info,
                                const MemoryWork& work, Device& device, Stream& stream);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_
