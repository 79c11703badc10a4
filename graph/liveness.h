// Which nodes matter, and the removal of the others.
#ifndef WEFT_GRAPH_LIVENESS_H_
#define WEFT_GRAPH_LIVENESS_H_

#include <vector>

#include "graph/graph.h"

namespace weft {

// By NodeId: true for nodes that a graph output or a variable's update depends on, that communicate
// (a peer waits for them) or that have no outputs at all, and for what these depend on.
std::vector<bool> LiveNodes(const Graph& graph);

// Removes the other nodes and the constants that nothing uses, and drops optional outputs that
// nothing uses. Inputs and variables stay: they are the graph's interface. True if anything
// changed.
bool RemoveDeadCode(Graph& graph);

}  // namespace weft

#endif  // WEFT_GRAPH_LIVENESS_H_
