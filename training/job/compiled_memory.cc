#include "training/job/compiled_memory.h"

#include "absl/status/statusor.h"
#include "executor/program/planned_memory.h"
#include "platform/status_macros.h"
#include "training/job/rank_device.h"

namespace weft {

int64_t ProgramBytes(const ProgramMemory& memory) {
  return memory.variable_bytes + memory.arena_bytes + memory.constant_bytes + memory.packed_bytes +
         memory.staging_bytes;
}

RankMemoryFn CompiledMemory(const ClusterSpec& cluster) {
  return [cluster](const Partition& partition, int worker) -> absl::StatusOr<int64_t> {
    WEFT_ASSIGN_OR_RETURN(Device* const device, DeviceOfWorker(cluster, worker));
    WEFT_ASSIGN_OR_RETURN(const ProgramMemory memory, PlanProgramMemory(partition, *device));
    return ProgramBytes(memory);
  };
}

}  // namespace weft
