#include "placement/rules/step_order.h"

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

std::vector<bool> NodesOfGuard(const StepSkeleton& skeleton, NodeId guard) {
  std::vector<bool> needed(skeleton.nodes.size());
  std::vector<NodeId> pending = {guard};
  while (!pending.empty()) {
    const NodeId id = pending.back();
    pending.pop_back();
    if (!id.valid() || needed[id.value]) continue;
    needed[id.value] = true;
    const StepSkeleton::Node& node = skeleton.node(id);
    if (node.role == NodeRole::kBoundary) continue;
    pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
  }
  return needed;
}

bool IsFirstSum(const StepSkeleton& skeleton, const std::vector<bool>& of_guard, NodeId boundary) {
  const StepSkeleton::Node& node = skeleton.node(boundary);
  const bool is_backward =
      !node.inputs.empty() && skeleton.node(node.inputs.front()).role == NodeRole::kBackward;
  return of_guard[boundary.value] || !is_backward;
}

}  // namespace weft
