#include "training/graph/gradient_nodes.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "platform/status_macros.h"
#include "training/graph/autodiff.h"

namespace weft {
namespace {

bool IsGradient(const Node& node) {
  return node.op == "Gradient" && node.domain == "ai.onnx.preview.training";
}

absl::Status Invalid(const Node& node, const std::string& message) {
  return absl::InvalidArgumentError(
      absl::StrCat("node '", node.name, "' (ai.onnx.preview.training::Gradient): ", message));
}

absl::StatusOr<ValueId> Named(const Graph& graph, const Node& node, const std::string& name) {
  const std::optional<ValueId> value = graph.FindValue(name);
  if (value.has_value()) return *value;
  return Invalid(node, absl::StrCat("it names the tensor '", name, "', which the graph lacks"));
}

// Copies of the nodes between the keys of `values` and `target`, on the values in their place.
// Returns what stands for `target`.
absl::StatusOr<ValueId> Recompute(Graph& graph, std::map<ValueId, ValueId> values, ValueId target) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  GraphBuilder builder(graph);
  for (const NodeId id : order) {
    const Node node = graph.node(id);
    bool touched = false;
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) {
      const auto other = values.find(input);
      touched |= other != values.end();
      inputs.push_back(other != values.end() ? other->second : input);
    }
    if (!touched || IsGradient(node)) continue;
    std::vector<bool> wanted;
    for (const ValueId output : node.outputs) wanted.push_back(output.valid());
    builder.set_name_prefix(absl::StrCat(node.name, "/again/"));
    const std::vector<ValueId> outputs =
        builder.Ops(node.domain, node.op, inputs, node.attributes, wanted);
    WEFT_RETURN_IF_ERROR(builder.status());
    // Values that are given stay what they are given as.
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (wanted[o]) values.emplace(node.outputs[o], outputs[o]);
    }
  }
  const auto found = values.find(target);
  return found == values.end() ? target : found->second;
}

// Replaces the outputs of the node. The nodes it adds belong to the forward pass: nothing trains.
absl::Status Replace(Graph& graph, NodeId id) {
  const Node node = graph.node(id);
  const std::vector<std::string> xs = node.attributes.Strings("xs");
  std::vector<std::string> names = xs;
  for (const std::string& z : node.attributes.Strings("zs")) names.push_back(z);
  if (names.size() != node.inputs.size() || node.outputs.size() > xs.size()) {
    return Invalid(
        node, absl::StrCat(node.inputs.size(), " inputs and ", node.outputs.size(), " outputs for ",
                           xs.size(), " names in xs and ", names.size() - xs.size(), " in zs"));
  }
  std::map<ValueId, ValueId> given;
  for (size_t i = 0; i < names.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const ValueId value, Named(graph, node, names[i]));
    if (node.inputs[i].valid() && value != node.inputs[i]) given[value] = node.inputs[i];
  }
  WEFT_ASSIGN_OR_RETURN(ValueId y, Named(graph, node, node.attributes.String("y", "")));
  if (!given.empty()) {
    WEFT_ASSIGN_OR_RETURN(y, Recompute(graph, given, y));
  }
  GraphBuilder builder(graph);
  builder.set_name_prefix(absl::StrCat(node.name, "/"));
  const Tensor one = Tensor::Of<float>(Shape{1}, std::vector<float>{1});
  WEFT_ASSIGN_OR_RETURN(Tensor seed, CastTensor(one, builder.type(y).dtype));
  const ValueId ones =
      builder.Op("ConstantOfShape", {builder.Op("Shape", {y})}, {{"value", std::move(seed)}});
  WEFT_RETURN_IF_ERROR(builder.status());
  const std::vector<ValueId> wanted(node.inputs.begin(), node.inputs.begin() + xs.size());
  const NodeId first(graph.node_capacity());
  WEFT_ASSIGN_OR_RETURN(const auto gradients, AddGradients(graph, {{y, ones}}, wanted));
  for (NodeId added = first; added.value < graph.node_capacity(); ++added.value) {
    if (graph.is_live(added)) graph.node(added).phase = Phase::kForward;
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    const auto found = gradients.find(wanted[i]);
    // What y does not depend on has the gradient zero.
    const ValueId gradient = found != gradients.end() ? builder.Op("Identity", {found->second})
                                                      : builder.Op("Sub", {wanted[i], wanted[i]});
    WEFT_RETURN_IF_ERROR(builder.status());
    const std::string name = graph.value(node.outputs[i]).name;
    graph.ReplaceUses(node.outputs[i], gradient);
    graph.RenameValue(node.outputs[i], absl::StrCat(name, "/replaced"));
    graph.RenameValue(gradient, name);
  }
  graph.RemoveNode(id);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReplaceGradientNodes(Graph& graph) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  bool any = false;
  for (const NodeId id : order) {
    if (!graph.is_live(id) || !IsGradient(graph.node(id))) continue;
    WEFT_RETURN_IF_ERROR(Replace(graph, id));
    any = true;
  }
  return any ? InferShapes(graph) : absl::OkStatus();
}

}  // namespace weft
