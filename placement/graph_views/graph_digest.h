// The identity of a graph.
#ifndef WEFT_PLACEMENT_GRAPH_VIEWS_GRAPH_DIGEST_H_
#define WEFT_PLACEMENT_GRAPH_VIEWS_GRAPH_DIGEST_H_

#include <cstdint>

#include "graph/graph.h"

namespace weft {

// Hash of a graph's structure (not of weights): what a plan is made for.
uint64_t GraphDigest(const Graph& graph);

}  // namespace weft

#endif  // WEFT_PLACEMENT_GRAPH_VIEWS_GRAPH_DIGEST_H_
