// The memory requirement of a partition, without running it.
#ifndef WEFT_EXECUTOR_PROGRAM_PLANNED_MEMORY_H_
#define WEFT_EXECUTOR_PROGRAM_PLANNED_MEMORY_H_

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "executor/lowering/executor_environment.h"
#include "executor/memory/program_memory.h"
#include "graph/partition.h"
#include "tensor/device.h"

namespace weft {

// Compiles the partition as its rank would, with nobody at the other end of its channels, and
// allocates no more than its constants: the memory is that of the rank's own compile, exactly.
// Errors are those of CompileStep.
absl::StatusOr<ProgramMemory> PlanProgramMemory(const Partition& partition, Device& device);

// The memory requirement of a program, and of messages that its peers may send ahead.
struct PlannedProgram {
  ProgramMemory memory;
  // By the rank that sends: most bytes that may come before the step asks for them.
  std::map<RankId, int64_t> unexpected_bytes;
};

// The same, with what peers may send ahead. ResourceExhausted, without the long time that laying
// out the arena of many micro-batches takes, where the variables and what is alive at one time are
// more than `max_bytes` already. `observe_lowering` as in ExecutorEnvironment.
absl::StatusOr<PlannedProgram> PlanProgram(const Partition& partition, Device& device,
                                           int64_t max_bytes,
                                           const LoweringObserver* observe_lowering = nullptr);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_PLANNED_MEMORY_H_
