#include "graph/inference.h"

#include "graph/node_inference.h"
#include "platform/status_macros.h"

namespace weft {

absl::Status InferNode(Graph& graph, NodeId node) {
  std::vector<InferredOutput> scratch;
  return InferInto(graph, graph.node(node), scratch).status();
}

absl::Status InferShapes(Graph& graph) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  std::vector<InferredOutput> scratch;
  for (const NodeId id : order) {
    WEFT_RETURN_IF_ERROR(InferInto(graph, graph.node(id), scratch).status());
  }
  return absl::OkStatus();
}

}  // namespace weft
