// Plans that were written for more than the graph at hand.
#ifndef WEFT_PLACEMENT_GRAPH_VIEWS_ABSENT_NAMES_H_
#define WEFT_PLACEMENT_GRAPH_VIEWS_ABSENT_NAMES_H_

#include "graph/graph.h"
#include "graph/plan.h"

namespace weft {

// Takes out stages of nodes and shardings of values that the graph does not have. A plan that was
// made for a model's file names nodes that its training graph has folded or left out; in a plan
// written by hand, such a name is an error.
void DropAbsentNames(const Graph& graph, Plan& plan);

}  // namespace weft

#endif  // WEFT_PLACEMENT_GRAPH_VIEWS_ABSENT_NAMES_H_
