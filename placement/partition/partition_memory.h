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

// The scratch memory that the kernel of a node takes while it runs, in bytes. It differs between
// processors.
using WorkspaceBytesFn = std::function<int64_t(const Graph& graph, const Node& node)>;

// Of everything that is made in the course of a step, in the order of its actions: an instruction
// is one run of a node. Variables and constants are not in it. Without `workspace` it is an upper
// bound but for workspaces. With it, outputs that the executor writes over their inputs lie there
// (OpSchema::in_place), as in the executor. Errors are those of an action list that names nodes
// that are not there.
absl::StatusOr<std::vector<BufferLifetime>> LifetimesOfStep(
    const Partition& partition, const WorkspaceBytesFn& workspace = nullptr);

// Of the rank's shards of all variables.
int64_t VariableBytes(const Partition& partition);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PARTITION_PARTITION_MEMORY_H_
