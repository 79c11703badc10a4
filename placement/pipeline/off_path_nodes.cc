#include "placement/pipeline/off_path_nodes.h"

#include "graph/node_class.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// By NodeId: forward nodes that the backward pass, or a forward node that it needs, has a use for.
std::vector<bool> NeededNodes(const Graph& graph, const std::vector<NodeId>& order) {
  std::vector<bool> needed(graph.node_capacity());
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& node = graph.node(*it);
    if (IsBackward(node)) {
      const auto forward = graph.FindNode(node.origin.forward_node);
      if (forward.has_value()) needed[forward->value] = true;
    }
  }
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& node = graph.node(*it);
    if (!IsBackward(node) && !(IsForward(node) && needed[it->value])) continue;
    for (const ValueId input : node.inputs) {
      const NodeId producer = input.valid() ? graph.value(input).producer : NodeId();
      if (producer.valid()) needed[producer.value] = true;
    }
  }
  return needed;
}

}  // namespace

absl::StatusOr<std::vector<NodeId>> LeadersOfOffPathNodes(const Graph& graph) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  std::vector<NodeId> leaders(graph.node_capacity());
  bool has_backward = false;
  std::vector<int> position(graph.node_capacity());
  for (size_t i = 0; i < order.size(); ++i) {
    position[order[i].value] = static_cast<int>(i);
    has_backward |= IsBackward(graph.node(order[i]));
  }
  if (!has_backward) return leaders;
  const std::vector<bool> needed = NeededNodes(graph, order);
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    if (!IsForward(node) || needed[id.value]) continue;
    NodeId& leader = leaders[id.value];
    for (const ValueId input : node.inputs) {
      const NodeId producer = input.valid() ? graph.value(input).producer : NodeId();
      if (!producer.valid() || !IsForward(graph.node(producer))) continue;
      const NodeId other = needed[producer.value] ? producer : leaders[producer.value];
      if (!other.valid()) continue;
      if (!leader.valid() || position[other.value] > position[leader.value]) leader = other;
    }
  }
  return leaders;
}

}  // namespace weft
