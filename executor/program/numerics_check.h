// Looks for the first node that makes a NaN or an infinity. Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_
#define WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "executor/lowering/lowered_step.h"
#include "ops/memory_work.h"
#include "tensor/device.h"

namespace weft {

// After a kernel has been put into `stream`: looks at its floating-point outputs (on the device;
// null: not wanted) and waits for that. `work` is the device's. OutOfRange naming output and
// element. After another error the device may still be at it: `held` then gets what it uses, which
// stays until the stream has been drained.
absl::Status CheckOutputsFinite(std::span<void* const> outputs, const InstructionInfo& info,
                                const MemoryWork& work, Device& device, Stream& stream,
                                std::vector<std::shared_ptr<const void>>& held);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_
