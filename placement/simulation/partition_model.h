// From the partitions of all ranks to the StepModel of their step.
#ifndef WEFT_PLACEMENT_SIMULATION_PARTITION_MODEL_H_
#define WEFT_PLACEMENT_SIMULATION_PARTITION_MODEL_H_

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "placement/cost/cost_model.h"
#include "placement/simulation/host_paths.h"
#include "placement/simulation/step_model.h"

namespace weft {

// The inputs of ModelOfPartitions besides partitions and costs.
struct PartitionModelOptions {
  // An instruction per node, with its name. Else successive ones are one, without a name: ranks
  // share more, and the simulation is shorter.
  bool per_node = false;
  HostPaths host = {};
};

// What the executor would do, in its order (graph/schedule/: action_nodes.h, end_order.h), with the
// cost model's seconds: nodes and the copies and sums between them on the compute stream, the
// all-reduces of complete sums on the communication stream, messages on the links between their
// workers' hosts (one link per pair of workers within a host) with the credits of
// placement/partition/partition_credits.h. Partitions are those of all ranks, by rank, or of some:
// the model's ranks are these. Others are taken to be at a collective when the last of these is; a
// channel that leads to one is Internal. `workers` is the cluster's worker of every rank
// (Plan::workers). Errors as of CollectiveOfNode and ActionNodes, and
// InvalidArgument when a worker is not the cost model's.
absl::StatusOr<StepModel> ModelOfPartitions(const std::vector<Partition>& partitions,
                                            std::span<const int> workers, const CostModel& costs,
                                            const PartitionModelOptions& options = {});

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_PARTITION_MODEL_H_
