// What a rank's step holds in memory.
#ifndef WEFT_PLACEMENT_PARTITION_PARTITION_MEMORY_H_
#define WEFT_PLACEMENT_PARTITION_PARTITION_MEMORY_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "graph/schedule/memory_plan.h"

namespace weft {

// What a rank on `worker` (an index into ClusterSpec::workers) needs for its partition besides its
// process, in bytes, as its own compile finds it: kernels' workspaces and packed weights differ
// between processors. Placement has no kernels, so its callers give the function. An error where
// this machine cannot tell, since it has no such device or kernel: estimates count then. Called by
// one thread at a time.
using RankMemoryFn = std::function<absl::StatusOr<int64_t>(const Partition& partition, int worker)>;

// An estimate of everything that is made in the course of a step, in the order of its actions: an
// instruction is one run of a node. Variables and constants are not in it. Workspaces of kernels
// are not known here; sums over micro-batches count from the first time they are read; and an
// output has memory of its own where the executor would write it over an input. Errors are those of
// an action list that names nodes that are not there.
absl::StatusOr<std::vector<BufferLifetime>> LifetimesOfStep(const Partition& partition);

// Of the rank's shards of all variables.
int64_t VariableBytes(const Partition& partition);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PARTITION_PARTITION_MEMORY_H_
