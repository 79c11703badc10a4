#include "placement/rules/step_skeleton.h"

#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

NodeId ProducerOf(const Graph& graph, ValueId value) {
  return value.valid() ? graph.value(value).producer : NodeId();
}

bool IsForwardNode(const Graph& graph, NodeId id) {
  return id.valid() && RoleOf(graph.node(id)) == NodeRole::kForward;
}

using VariableIndex = absl::flat_hash_map<absl::string_view, int>;

VariableIndex IndexVariables(const Graph& graph) {
  VariableIndex index;
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    index[graph.variables()[i].name] = static_cast<int>(i);
  }
  return index;
}

int Find(const VariableIndex& index, const std::string& name) {
  const auto found = index.find(name);
  return found == index.end() ? -1 : found->second;
}

void FindOrigin(const Graph& graph, const Origin& origin, const VariableIndex& variables,
                StepSkeleton::Node& node) {
  if (!origin.forward_node.empty()) {
    const std::optional<NodeId> forward = graph.FindNode(origin.forward_node);
    if (forward.has_value() && IsForwardNode(graph, *forward)) node.forward_node = *forward;
  }
  if (origin.logical_value.empty()) return;
  node.variable = Find(variables, origin.logical_value);
  const std::optional<ValueId> value = graph.FindValue(origin.logical_value);
  if (!value.has_value()) return;
  const NodeId producer = ProducerOf(graph, *value);
  if (IsForwardNode(graph, producer)) node.logical_producer = producer;
}

}  // namespace

absl::StatusOr<StepSkeleton> MakeSkeleton(const Graph& graph) {
  StepSkeleton skeleton;
  WEFT_ASSIGN_OR_RETURN(skeleton.order, graph.TopologicalOrder());
  skeleton.nodes.resize(graph.node_capacity());
  const VariableIndex variables = IndexVariables(graph);
  for (const Variable& variable : graph.variables()) {
    StepSkeleton::Variable& one = skeleton.variables.emplace_back();
    if (!variable.slot_of.empty()) one.slot_of = Find(variables, variable.slot_of);
    one.update = ProducerOf(graph, variable.update);
  }
  for (const NodeId id : skeleton.order) {
    const Node& node = graph.node(id);
    StepSkeleton::Node& one = skeleton.nodes[id.value];
    one.role = RoleOf(node);
    if (one.role != NodeRole::kForward) FindOrigin(graph, node.origin, variables, one);
    for (const ValueId input : node.inputs) {
      if (const NodeId producer = ProducerOf(graph, input); producer.valid()) {
        one.inputs.push_back(producer);
        skeleton.nodes[producer.value].readers.push_back(id);
      } else if (const Variable* variable = input.valid() ? graph.VariableOf(input) : nullptr) {
        skeleton.variables[variable - graph.variables().data()].readers.push_back(id);
      }
    }
  }
  for (const ValueId output : graph.outputs()) {
    if (const NodeId producer = ProducerOf(graph, output); producer.valid()) {
      skeleton.reports.push_back(producer);
    }
  }
  return skeleton;
}

}  // namespace weft
