// Nodes that are alike: same op, attributes, types and surroundings. What is asked of one member of
// a class is true of all, so a deep model of equal blocks is looked at once. Internal to
// placement/search/.
#ifndef WEFT_PLACEMENT_SEARCH_NODE_CLASSES_H_
#define WEFT_PLACEMENT_SEARCH_NODE_CLASSES_H_

#include <vector>

#include "graph/graph.h"

namespace weft {

// By NodeId, for a graph with concrete shapes: equal numbers for nodes with equal op, attributes,
// phase, types and sources of operands, number of readers of each input, and equal small constants.
// Nodes with a body are in classes of their own. -1 where there is no node.
std::vector<int> ClassifyNodes(const Graph& graph,
                               const std::vector<std::vector<Graph::Use>>& uses);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_NODE_CLASSES_H_
