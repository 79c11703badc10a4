// Expansion: replaces nodes by the simpler ones that their schemas say they are made of.
#ifndef WEFT_GRAPH_EXPANSION_H_
#define WEFT_GRAPH_EXPANSION_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/op_schema.h"

namespace weft {

// Whether the engine runs a node itself; the graph sees no kernels, so its user says.
using RunsNodeFn = std::function<bool(const Node&)>;

// Replaces a node by its schema's expansion. The new nodes have the node's phase and stage, its
// name and "/" in front of theirs, and the node as origin; its outputs keep their names. When the
// expansion refuses (it may want a rank or size that is not known yet), the error names the node
// and the graph is as before. REQUIRES: node.schema != nullptr && node.schema->expand().
absl::Status ExpandNode(Graph& graph, NodeId node);

// The same by `build`, whatever the schema says; false where it makes no values, and the node
// stays.
absl::StatusOr<bool> ReplaceNode(Graph& graph, NodeId node, const ExpandFn& build);

// Expands every node that `runs_node` does not know and that has an expansion, and what comes of
// it, to the end. True if any was. A node that cannot be expanded stays, and the reason is added to
// `refusals`; when that is null it is the error. Types are those of before: infer shapes first.
absl::StatusOr<bool> ExpandFunctions(Graph& graph, const RunsNodeFn& runs_node,
                                     std::vector<absl::Status>* refusals = nullptr);

}  // namespace weft

#endif  // WEFT_GRAPH_EXPANSION_H_
