#include "training/adapters/dequantization_order.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The forward nodes that make weights of quantized ones.
class WeightNodes {
 public:
  explicit WeightNodes(const Graph& graph) : graph_(graph), is_weight_(graph.node_capacity()) {}

  absl::Status Find() {
    WEFT_ASSIGN_OR_RETURN(order_, graph_.TopologicalOrder());
    for (const Variable& variable : graph_.variables()) {
      if (variable.trainable || variable.update.valid()) changes_.push_back(variable.value);
    }
    std::sort(changes_.begin(), changes_.end());
    for (const NodeId id : order_) {
      is_weight_[id.value] = MakesWeight(graph_.node(id));
      any_ = any_ || is_weight_[id.value];
    }
    return absl::OkStatus();
  }

  bool any() const { return any_; }
  const std::vector<NodeId>& order() const { return order_; }
  // False for nodes that were added since.
  bool Makes(NodeId node) const {
    return node.valid() && static_cast<size_t>(node.value) < is_weight_.size() &&
           is_weight_[node.value] && graph_.is_live(node);
  }
  // None of a value that is gone.
  NodeId ProducerOf(ValueId value) const {
    return value.valid() && graph_.is_live(value) ? graph_.value(value).producer : NodeId();
  }

 private:
  bool MakesWeight(const Node& node) const;

  const Graph& graph_;
  std::vector<NodeId> order_;
  std::vector<ValueId> changes_;  // variables, sorted
  std::vector<bool> is_weight_;   // by NodeId
  bool any_ = false;
};

bool WeightNodes::MakesWeight(const Node& node) const {
  if (!IsForward(node) || node.outputs.size() != 1 || node.schema == nullptr) return false;
  if (node.schema->stateful() || node.schema->op_class() != OpClass::kCompute) return false;
  bool of_weights = node.domain.empty() && node.op == "DequantizeLinear";
  for (const ValueId input : node.inputs) {
    if (!input.valid()) continue;
    const ValueDef& value = graph_.value(input);
    if (value.source == ValueSource::kNode) {
      if (!is_weight_[value.producer.value]) return false;
      of_weights = true;
    } else if (value.source == ValueSource::kVariable) {
      if (std::binary_search(changes_.begin(), changes_.end(), input)) return false;
    } else if (value.source != ValueSource::kConstant) {
      return false;
    }
  }
  return of_weights;
}

// What a node like `node` is added by.
Graph::NodeSpec SpecLike(const Graph& graph, const Node& node, const std::string& prefix) {
  Graph::NodeSpec spec;
  spec.name = absl::StrCat(prefix, node.name);
  spec.domain = node.domain;
  spec.op = node.op;
  spec.attributes = node.attributes;
  spec.inputs = node.inputs;
  spec.outputs = {absl::StrCat(prefix, graph.value(node.outputs.front()).name)};
  spec.phase = node.phase;
  spec.stage = node.stage;
  spec.origin = node.origin;
  return spec;
}

absl::StatusOr<ValueId> AddInferred(Graph& graph, Graph::NodeSpec spec) {
  const NodeId added = graph.AddNode(std::move(spec));
  WEFT_RETURN_IF_ERROR(InferNode(graph, added));
  return graph.node(added).outputs.front();
}

// Adds nodes again behind all others, in place of what they were.
class LatePass {
 public:
  LatePass(Graph& graph, const WeightNodes& nodes) : graph_(graph), nodes_(nodes) {}

  absl::Status Run() {
    for (const NodeId reader : nodes_.order()) {
      if (!graph_.is_live(reader) || nodes_.Makes(reader)) continue;
      const std::vector<ValueId> inputs = graph_.node(reader).inputs;
      for (const ValueId input : inputs) WEFT_RETURN_IF_ERROR(Move(input));
    }
    return absl::OkStatus();
  }

 private:
  // What makes the value, after what that reads.
  absl::Status Move(ValueId value) {
    const NodeId id = nodes_.ProducerOf(value);
    if (!nodes_.Makes(id)) return absl::OkStatus();
    const std::vector<ValueId> inputs = graph_.node(id).inputs;
    for (const ValueId input : inputs) WEFT_RETURN_IF_ERROR(Move(input));
    Graph::NodeSpec spec = SpecLike(graph_, graph_.node(id), "");
    const Origin origin = graph_.value(value).origin;
    graph_.RemoveNode(id);  // so that the new one may have its name
    WEFT_ASSIGN_OR_RETURN(const ValueId made, AddInferred(graph_, std::move(spec)));
    graph_.value(made).origin = origin;
    graph_.ReplaceUses(value, made);
    return absl::OkStatus();
  }

  Graph& graph_;
  const WeightNodes& nodes_;
};

// Adds copies for the backward pass.
class AgainPass {
 public:
  AgainPass(Graph& graph, const WeightNodes& nodes) : graph_(graph), nodes_(nodes) {}

  absl::Status Run() {
    for (const NodeId reader : nodes_.order()) {
      if (!IsBackward(graph_.node(reader))) continue;
      const std::vector<ValueId> inputs = graph_.node(reader).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const std::string forward_node = graph_.node(reader).origin.forward_node;
        WEFT_ASSIGN_OR_RETURN(const ValueId copy, CopyOf(inputs[i], forward_node));
        graph_.node(reader).inputs[i] = copy;
      }
    }
    return absl::OkStatus();
  }

 private:
  // The value itself where no weight node makes it.
  absl::StatusOr<ValueId> CopyOf(ValueId value, const std::string& forward_node) {
    const NodeId id = nodes_.ProducerOf(value);
    if (!nodes_.Makes(id)) return value;
    const auto known = copies_.find({value, forward_node});
    if (known != copies_.end()) return known->second;
    Graph::NodeSpec spec = SpecLike(graph_, graph_.node(id), "again/");
    for (ValueId& input : spec.inputs) {
      WEFT_ASSIGN_OR_RETURN(input, CopyOf(input, forward_node));
    }
    spec.phase = Phase::kBackward;
    if (!forward_node.empty()) spec.origin.forward_node = forward_node;
    spec.origin.logical_value = graph_.value(value).name;
    WEFT_ASSIGN_OR_RETURN(const ValueId made, AddInferred(graph_, std::move(spec)));
    copies_[{value, forward_node}] = made;
    return made;
  }

  Graph& graph_;
  const WeightNodes& nodes_;
  std::map<std::pair<ValueId, std::string>, ValueId> copies_;
};

}  // namespace

absl::Status ComputeWeightsLate(Graph& graph) {
  WeightNodes nodes(graph);
  WEFT_RETURN_IF_ERROR(nodes.Find());
  return nodes.any() ? LatePass(graph, nodes).Run() : absl::OkStatus();
}

absl::Status ComputeWeightsAgain(Graph& graph) {
  WeightNodes nodes(graph);
  WEFT_RETURN_IF_ERROR(nodes.Find());
  return nodes.any() ? AgainPass(graph, nodes).Run() : absl::OkStatus();
}

}  // namespace weft
