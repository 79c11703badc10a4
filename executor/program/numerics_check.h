// Looks for the first node that makes a NaN or an infinity. Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_
#define WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_

#include "absl/status/status.h"
#include "executor/lowering/lowered_step.h"
#include "executor/program/instruction.h"
#include "ops/memory_work.h"
#include "tensor/device.h"

namespace weft {

// After a kernel has been put into `stream`: looks at the floating-point outputs, where they are,
// and waits for that. `work` is the device's. OutOfRange naming output and element.
absl::Status CheckOutputsFinite(const bound::KernelRun& run, const InstructionInfo& info,
                                const MemoryWork& work, Device& device, Stream& stream);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_
