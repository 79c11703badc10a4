// Nodes beside the way from the inputs to the loss. Internal to placement/.
#ifndef WEFT_PLACEMENT_PIPELINE_OFF_PATH_NODES_H_
#define WEFT_PLACEMENT_PIPELINE_OFF_PATH_NODES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

// By NodeId, of each forward node of a training graph that nothing of a micro-batch needs (a new
// running statistic, a count): the last node that is needed and that it has its inputs from, for it
// lies where that one does, or else its results and what it reads would travel. Invalid for all
// other nodes, those without such an input, and all of a graph without a backward pass. Of several
// inputs the last one is that which comes last in the graph's order.
absl::StatusOr<std::vector<NodeId>> LeadersOfOffPathNodes(const Graph& graph);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PIPELINE_OFF_PATH_NODES_H_
