// Off-path nodes: those that are on no path from the inputs to the loss. Internal to placement/.
#ifndef WEFT_PLACEMENT_PIPELINE_OFF_PATH_NODES_H_
#define WEFT_PLACEMENT_PIPELINE_OFF_PATH_NODES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

// By NodeId, for each off-path node of a training graph (such as one that makes a new running
// statistic, or a count): the last of its producers that is on the path, in the graph's order. The
// off-path node belongs to the stage of that producer, which saves transfers of its inputs. Invalid
// for all other nodes, for off-path nodes without such a producer, and for all nodes of a graph
// without a backward pass.
absl::StatusOr<std::vector<NodeId>> LeadersOfOffPathNodes(const Graph& graph);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PIPELINE_OFF_PATH_NODES_H_
