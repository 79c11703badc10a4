#include "graph/node_bodies.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// The tensor that the value is whenever the graph runs; not valid when that is not known.
Tensor FixedTensor(const Graph& graph, ValueId id) {
  if (!id.valid()) return Tensor();
  const ValueDef& value = graph.value(id);
  if (value.source == ValueSource::kConstant) return value.constant;
  if (value.source != ValueSource::kVariable) return Tensor();
  const Variable* variable = graph.VariableOf(id);
  if (variable == nullptr || (variable->update.valid() && variable->update != variable->value)) {
    return Tensor();
  }
  return variable->initial;
}

void MoveConstants(const Graph& graph, Node& node) {
  std::vector<bool> moved(node.inputs.size());
  for (const NodeBody& body : BodiesOf(node)) {
    const std::vector<ValueId> inputs = body.graph->inputs();
    const int own = body.num_inputs();
    std::vector<std::string> names = node.attributes.Strings(CapturesAttribute(body.name));
    std::vector<std::string> left;
    for (int i = 0; i < body.captures; ++i) {
      const Tensor tensor = FixedTensor(graph, node.inputs[body.first_capture + i]);
      if (!tensor.valid()) {
        left.push_back(names[i]);
        continue;
      }
      body.graph->MakeConstant(inputs[own + i], tensor);
      moved[body.first_capture + i] = true;
    }
    if (left.size() < names.size()) node.attributes.Set(CapturesAttribute(body.name), left);
  }
  size_t kept = 0;
  for (size_t i = 0; i < moved.size(); ++i) {
    if (!moved[i]) node.inputs[kept++] = node.inputs[i];
  }
  node.inputs.resize(kept);
}

}  // namespace

std::string CapturesAttribute(const std::string& body) {
  return absl::StrCat("weft.captures.", body);
}

std::vector<NodeBody> BodiesOf(const Node& node) {
  std::vector<NodeBody> bodies;
  int total = 0;
  for (const auto& [name, attribute] : node.attributes.items()) {
    const auto* graph = std::get_if<std::shared_ptr<Graph>>(&attribute);
    if (graph == nullptr || *graph == nullptr) continue;
    const auto listed = static_cast<int>(node.attributes.Strings(CapturesAttribute(name)).size());
    const int captures = std::min({listed, static_cast<int>((*graph)->inputs().size()),
                                   static_cast<int>(node.inputs.size()) - total});
    bodies.push_back({name, graph->get(), total, captures});
    total += captures;
  }
  const int own = static_cast<int>(node.inputs.size()) - total;
  for (NodeBody& body : bodies) body.first_capture += own;
  return bodies;
}

int NumOwnInputs(const Node& node) {
  const std::vector<NodeBody> bodies = BodiesOf(node);
  return bodies.empty() ? static_cast<int>(node.inputs.size()) : bodies.front().first_capture;
}

void MoveConstantsIntoBodies(Graph& graph) {
  for (const NodeId id : graph.node_ids()) {
    Node& node = graph.node(id);
    if (!BodiesOf(node).empty()) MoveConstants(graph, node);
  }
}

}  // namespace weft
