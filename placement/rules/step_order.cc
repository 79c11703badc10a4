#include "placement/rules/step_order.h"

#include "graph/node_class.h"
#include "graph/partition.h"

namespace weft {

ValueId GuardOf(const Graph& graph) {
  ValueId guard;
  for (const ValueId id : graph.outputs()) {
    const ValueDef& value = graph.value(id);
    const bool is_scalar = IsFloatingPoint(value.type.dtype) &&
                           value.type.shape.ToConcrete().value_or(Shape{0}).num_elements() == 1;
    if (is_scalar && (!guard.valid() || value.name == "loss")) guard = id;
  }
  for (const ValueId id : graph.outputs()) {
    if (graph.value(id).name == kStepGuard) guard = id;
  }
  return guard;
}

std::vector<bool> NodesOfGuard(const Graph& graph, ValueId guard) {
  std::vector<bool> needed(graph.node_capacity());
  std::vector<ValueId> pending = {guard};
  while (!pending.empty()) {
    const ValueId value = pending.back();
    pending.pop_back();
    const NodeId id = value.valid() ? graph.value(value).producer : NodeId();
    if (!id.valid() || needed[id.value]) continue;
    needed[id.value] = true;
    const Node& node = graph.node(id);
    if (IsBoundary(node)) continue;
    pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
  }
  return needed;
}

bool IsFirstSum(const Graph& graph, const std::vector<bool>& of_guard, NodeId boundary) {
  const ValueId term = graph.node(boundary).inputs[0];
  const NodeId producer = term.valid() ? graph.value(term).producer : NodeId();
  const bool is_backward = producer.valid() && IsBackward(graph.node(producer));
  return of_guard[boundary.value] || !is_backward;
}

}  // namespace weft
