#include "graph/inference.h"

#include "graph/node_inference.h"
#include "graph/op_schema.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferInto(Graph& graph, const Node& node, std::vector<InferredOutput>& outputs) {
  if (node.schema == nullptr || !node.schema->infer()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(InferOutputs(graph, node, outputs));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    ValueDef& value = graph.value(node.outputs[i]);
    value.type = std::move(outputs[i].type);
    value.elements = std::move(outputs[i].elements);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InferNode(Graph& graph, NodeId node) {
  std::vector<InferredOutput> outputs;
  return InferInto(graph, graph.node(node), outputs);
}

absl::Status InferShapes(Graph& graph) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  std::vector<InferredOutput> outputs;
  for (const NodeId id : order) WEFT_RETURN_IF_ERROR(InferInto(graph, graph.node(id), outputs));
  return absl::OkStatus();
}

}  // namespace weft
