#include "placement/graph_views/evaluation_step.h"

#include <algorithm>
#include <vector>

#include "graph/node_class.h"
#include "platform/status_macros.h"

namespace weft {

absl::Status KeepEvaluation(Graph& graph) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  std::vector<bool> needs_backward(graph.value_capacity());
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    const bool needs =
        IsBackward(node) || std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
          return input.valid() && needs_backward[input.value];
        });
    for (const ValueId output : node.outputs) {
      if (output.valid()) needs_backward[output.value] = needs;
    }
  }
  std::vector<ValueId> outputs = graph.outputs();
  outputs.erase(std::remove_if(outputs.begin(), outputs.end(),
                               [&](ValueId id) { return needs_backward[id.value]; }),
                outputs.end());
  if (outputs.empty()) {
    return absl::InvalidArgumentError(
        "nothing to evaluate: every graph output depends on the backward pass");
  }
  graph.SetOutputs(std::move(outputs));
  for (Variable& variable : graph.mutable_variables()) variable.update = kNoValue;
  return absl::OkStatus();
}

}  // namespace weft
