// The memory that the ranks of a plan need, as their own compiles find it: one figure for the
// search, for the prediction in a plan and for the refusal of a job that does not fit.
#ifndef WEFT_TRAINING_JOB_COMPILED_MEMORY_H_
#define WEFT_TRAINING_JOB_COMPILED_MEMORY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "executor/memory/program_memory.h"
#include "executor/program/planned_memory.h"
#include "graph/cluster_spec.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "placement/partition/partition_memory.h"

namespace weft {

// In bytes, of the memory that the worker's limit is of: variables, arena, constants, and what
// kernels keep from run to run. Of a program on a device whose memory the host cannot reach, those
// of the device, else also staging.
int64_t ProgramBytes(const ProgramMemory& memory);

// ProgramBytes of a partition compiled for the device of its worker (PlanProgramMemory); a copy of
// the cluster's workers is kept. Compiling takes up to a second or two for a large partition. The
// function's errors: OutOfRange for a worker that the cluster does not have; those of FindDevice
// and PlanProgramMemory.
RankMemoryFn CompiledMemory(const ClusterSpec& cluster);

// By rank: what it was found to need; nullopt where this build has not its worker's device, or not
// a kernel for one of its nodes.
using PlannedRanks = std::vector<std::optional<PlannedProgram>>;

// Compiles the partitions of a plan, in turn (PlanProgram): once for all who ask.
PlannedRanks PlanRanks(const std::vector<Partition>& partitions, const ClusterSpec& cluster,
                       const Plan& plan);

// ProgramBytes of these ranks. Borrows `ranks`. The function's error: Unavailable for a rank that
// is not among them.
RankMemoryFn MemoryIn(const PlannedRanks& ranks);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_COMPILED_MEMORY_H_
