#include "graph/liveness.h"

#include "graph/op_schema.h"

namespace weft {
namespace {

bool HasEffect(const Node& node) {
  return node.outputs.empty() ||
         (node.schema != nullptr && node.schema->op_class() == OpClass::kCommunication);
}

// By ValueId: true for what nodes, graph outputs or updates use.
std::vector<bool> UsedValues(const Graph& graph) {
  std::vector<bool> used(graph.value_capacity());
  const auto mark = [&used](ValueId id) {
    if (id.valid()) used[id.value] = true;
  };
  for (const NodeId id : graph.node_ids()) {
    for (const ValueId input : graph.node(id).inputs) mark(input);
  }
  for (const ValueId output : graph.outputs()) mark(output);
  for (const Variable& variable : graph.variables()) mark(variable.update);
  return used;
}

bool DropUnusedOutputs(Graph& graph, NodeId id, const std::vector<bool>& used) {
  const Node& node = graph.node(id);
  if (node.schema == nullptr || HasEffect(node)) return false;
  bool changed = false;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs[i];
    if (!output.valid() || used[output.value]) continue;
    const FormalParameter* formal = node.schema->FormalOutput(static_cast<int>(i));
    if (formal == nullptr || !formal->optional) continue;
    graph.DropOutput(id, static_cast<int>(i));
    changed = true;
  }
  return changed;
}

}  // namespace

std::vector<bool> LiveNodes(const Graph& graph) {
  std::vector<bool> live(graph.node_capacity());
  std::vector<NodeId> todo;
  const auto visit = [&](NodeId id) {
    if (live[id.value]) return;
    live[id.value] = true;
    todo.push_back(id);
  };
  const auto visit_producer = [&](ValueId id) {
    if (id.valid() && graph.value(id).source == ValueSource::kNode) {
      visit(graph.value(id).producer);
    }
  };
  for (const ValueId output : graph.outputs()) visit_producer(output);
  for (const Variable& variable : graph.variables()) visit_producer(variable.update);
  for (const NodeId id : graph.node_ids()) {
    if (HasEffect(graph.node(id))) visit(id);
  }
  while (!todo.empty()) {
    const NodeId id = todo.back();
    todo.pop_back();
    for (const ValueId input : graph.node(id).inputs) visit_producer(input);
  }
  return live;
}

bool RemoveDeadCode(Graph& graph) {
  bool changed = false;
  const std::vector<bool> live = LiveNodes(graph);
  for (const NodeId id : graph.node_ids()) {
    if (live[id.value]) continue;
    graph.RemoveNode(id);
    changed = true;
  }
  const std::vector<bool> used = UsedValues(graph);
  for (const ValueId id : graph.value_ids()) {
    if (used[id.value] || graph.value(id).source != ValueSource::kConstant) continue;
    graph.RemoveConstant(id);
    changed = true;
  }
  for (const NodeId id : graph.node_ids()) {
    if (DropUnusedOutputs(graph, id, used)) changed = true;
  }
  return changed;
}

}  // namespace weft
