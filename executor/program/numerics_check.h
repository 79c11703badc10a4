// Looks for the first node that makes a NaN or an infinity. Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_
#define WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_

#include "absl/status/status.h"
#include "executor/lowering/lowered_step.h"
#include "executor/program/instruction.h"
#include "tensor/device.h"

namespace weft {

// After a kernel has been put into `stream`: waits for it and looks at the floating-point outputs.
// OutOfRange naming output and element.
absl::Status CheckOutputsFinite(const bound::KernelRun& run, const InstructionInfo& info,
                                Device& device, Stream& stream, absl::Duration timeout);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_NUMERICS_CHECK_H_
