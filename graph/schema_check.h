// Checks that a node fits its op's schema.
#ifndef WEFT_GRAPH_SCHEMA_CHECK_H_
#define WEFT_GRAPH_SCHEMA_CHECK_H_

#include "absl/status/status.h"
#include "graph/graph.h"

namespace weft {

// InvalidArgument, naming the node, unless the counts of inputs and outputs, the presence of
// required ones, their dtypes (where known) and the names, types and presence of attributes are
// what the schema says. OK for a node without a schema. The node's inputs must be values of
// `graph`.
absl::Status CheckNodeAgainstSchema(const Graph& graph, const Node& node);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEMA_CHECK_H_
