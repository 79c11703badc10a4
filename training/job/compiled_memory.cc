#include "training/job/compiled_memory.h"

#include <limits>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/job/rank_device.h"

namespace weft {

int64_t ProgramBytes(const ProgramMemory& memory) {
  const int64_t computed = memory.variable_bytes + memory.arena_bytes + memory.packed_bytes;
  if (memory.on_device) return computed + memory.device_constant_bytes;
  return computed + memory.constant_bytes + memory.staging_bytes;
}

RankMemoryFn CompiledMemory(const ClusterSpec& cluster) {
  return [cluster](const Partition& partition, int worker) -> absl::StatusOr<int64_t> {
    WEFT_ASSIGN_OR_RETURN(Device* const device, DeviceOfWorker(cluster, worker));
    WEFT_ASSIGN_OR_RETURN(const ProgramMemory memory, PlanProgramMemory(partition, *device));
    return ProgramBytes(memory);
  };
}

PlannedRanks PlanRanks(const std::vector<Partition>& partitions, const ClusterSpec& cluster,
                       const Plan& plan) {
  PlannedRanks ranks;
  for (const Partition& partition : partitions) {
    std::optional<PlannedProgram>& rank = ranks.emplace_back();
    const auto device = DeviceOfRank(cluster, plan, partition.rank);
    if (!device.ok()) continue;
    auto planned = PlanProgram(partition, **device, std::numeric_limits<int64_t>::max());
    if (planned.ok()) rank = *std::move(planned);
  }
  return ranks;
}

RankMemoryFn MemoryIn(const PlannedRanks& ranks) {
  return [&ranks](const Partition& partition, int) -> absl::StatusOr<int64_t> {
    const auto rank = static_cast<size_t>(partition.rank.value);
    if (rank < ranks.size() && ranks[rank].has_value()) return ProgramBytes(ranks[rank]->memory);
    return absl::UnavailableError(absl::StrCat("rank ", rank, " was not compiled here"));
  };
}

}  // namespace weft
