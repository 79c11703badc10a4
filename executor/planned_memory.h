// What a partition would need, without running it.
#ifndef WEFT_EXECUTOR_PLANNED_MEMORY_H_
#define WEFT_EXECUTOR_PLANNED_MEMORY_H_

#include "absl/status/statusor.h"
#include "executor/step_program.h"
#include "graph/partition.h"
#include "tensor/device.h"

namespace weft {

// Compiles the partition as its rank would, with nobody at the other end of its channels, and
// allocates no more than its constants: the memory is that of the rank's own compile, exactly.
// Errors are those of CompileStep.
absl::StatusOr<ProgramMemory> PlanProgramMemory(const Partition& partition, Device& device);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLANNED_MEMORY_H_
