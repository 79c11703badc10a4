#include "ops/testing/graph_evaluator.h"

#include "absl/strings/str_cat.h"
#include "graph/node_inference.h"
#include "ops/concrete_node.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

// By value id: what the wanted values need.
std::vector<bool> Needed(const Graph& graph, const std::vector<NodeId>& order,
                         const std::vector<ValueId>& wanted) {
  std::vector<bool> needed(graph.value_capacity(), false);
  for (const ValueId value : wanted) needed[value.value] = true;
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const Node& node = graph.node(*id);
    bool any = false;
    for (const ValueId output : node.outputs) any |= output.valid() && needed[output.value];
    if (!any) continue;
    for (const ValueId input : node.inputs) {
      if (input.valid()) needed[input.value] = true;
    }
  }
  return needed;
}

bool ProducesNeeded(const Node& node, const std::vector<bool>& needed,
                    const std::vector<Tensor>& values) {
  for (const ValueId output : node.outputs) {
    if (output.valid() && needed[output.value] && !values[output.value].valid()) return true;
  }
  return false;
}

// Constants, and what inference knows of shape arithmetic (a program folds it in the same way).
std::vector<Tensor> KnownValues(const Graph& graph) {
  std::vector<Tensor> values(graph.value_capacity());
  for (const ValueId id : graph.value_ids()) {
    const ValueDef& value = graph.value(id);
    if (value.source == ValueSource::kConstant) values[id.value] = value.constant;
    if (value.source != ValueSource::kNode || !value.elements.has_value()) continue;
    std::optional<Tensor> tensor = TensorOfElements(value.type, *value.elements);
    if (tensor.has_value()) values[id.value] = *std::move(tensor);
  }
  return values;
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> EvaluateGraph(const Graph& graph,
                                                  const std::map<ValueId, Tensor>& feeds,
                                                  const std::vector<ValueId>& wanted,
                                                  const KernelRegistry& registry) {
  std::vector<Tensor> values = KnownValues(graph);
  for (const Variable& variable : graph.variables()) {
    values[variable.value.value] = variable.initial;
  }
  for (const auto& [id, tensor] : feeds) values[id.value] = tensor;

  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  const std::vector<bool> needed = Needed(graph, order, wanted);
  NodeRunOptions options;
  options.registry = &registry;
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    if (!ProducesNeeded(node, needed, values)) continue;
    std::vector<Tensor> inputs;
    for (const ValueId input : node.inputs) {
      inputs.push_back(input.valid() ? values[input.value] : Tensor());
      if (input.valid() && !inputs.back().valid()) {
        return absl::InvalidArgumentError(absl::StrCat("no tensor is given for '",
                                                       graph.value(input).name, "', an input of '",
                                                       node.name, "'"));
      }
    }
    WEFT_ASSIGN_OR_RETURN(const ConcreteNode concrete,
                          ConcreteNode::Create(node, std::move(inputs), options));
    WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, concrete.Run());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i].valid()) values[node.outputs[i].value] = outputs[i];
    }
  }
  std::vector<Tensor> results;
  for (const ValueId value : wanted) results.push_back(values[value.value]);
  return results;
}

}  // namespace weft::testing
