// Pass "groups": runs kernels that do the same on different operands as one. Internal to executor/.
//
// Input   a program whose buffers are merged as they will be, without lifetimes.
// Output  the same with one instruction for kernels of one key (JoinableKernel::group_key) where
// that is
//         possible; its operands are theirs, one after the other. Each group has an info of its
//         own, which knows its nodes.
// Laws    Whatever read a value reads the same value. Only instructions that run once per step
//         move, and none across one that waits for, or is waited for by, anything but the compute
//         list (a collective, a signal, an await, a guard, ...): what may start after one update
//         never waits for the updates behind it. A group keeps at most kMaxHeldBytes alive that
//         would not be alive at once without it.
#ifndef WEFT_EXECUTOR_LOWERING_GROUP_KERNELS_H_
#define WEFT_EXECUTOR_LOWERING_GROUP_KERNELS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "executor/lowering/lowering_program.h"

namespace weft {

inline constexpr int64_t kMaxHeldBytes = int64_t{32} << 20;

// `max_held_bytes`: see above. The errors of JoinableKernel::Join.
absl::StatusOr<LoweringProgram> GroupKernels(LoweringProgram program,
                                             int64_t max_held_bytes = kMaxHeldBytes);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_GROUP_KERNELS_H_
