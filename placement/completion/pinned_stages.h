// Pins: forward nodes that must run on a certain worker. Internal to placement/.
#ifndef WEFT_PLACEMENT_COMPLETION_PINNED_STAGES_H_
#define WEFT_PLACEMENT_COMPLETION_PINNED_STAGES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/graph.h"
#include "graph/plan.h"

namespace weft {

// The stages, by node name, that plan.pins ask for: a worker stands for the stage that it runs, so
// on a mesh with several replicas or shards its peers run the node too. REQUIRES a complete mesh
// and plan.workers. InvalidArgument, naming pin and worker, for a worker that the cluster does not
// have, a pin that no node fits (in a training graph), and a worker that runs several stages or,
// where there is no pipeline, all of them.
absl::StatusOr<std::map<std::string, int>> PinnedStages(const Graph& graph,
                                                        const ClusterSpec& cluster,
                                                        const Plan& plan);

// The stages that each node may be on, given those of some: not before what it reads, not after
// what reads it.
struct StageRange {
  int first = 0;
  int last = 0;
};

// By NodeId, for `stages` stages. InvalidArgument naming both nodes where the forward pass would
// have to go from a stage back to an earlier one.
absl::StatusOr<std::vector<StageRange>> StageRanges(const Graph& graph, int stages,
                                                    const std::map<std::string, int>& pinned);

}  // namespace weft

#endif  // WEFT_PLACEMENT_COMPLETION_PINNED_STAGES_H_
