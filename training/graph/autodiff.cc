#include "training/graph/autodiff.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "graph/op_schema.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The walk over one graph. Nodes that exist at its start are "the forward graph"; what it adds is
// not differentiated again.
class Differentiator {
 public:
  Differentiator(Graph& graph, const std::vector<GradientSeed>& seeds,
                 const std::vector<ValueId>& wanted)
      : graph_(graph), seeds_(seeds), wanted_(wanted) {}

  absl::StatusOr<std::map<ValueId, ValueId>> Run();

  Graph& graph() { return graph_; }
  bool DependsOnWanted(ValueId value) const {
    return value.valid() && value.value < static_cast<int32_t>(depends_.size()) &&
           depends_[value.value];
  }
  // The sum of the gradients that have arrived at `value`; kNoValue if none has.
  absl::StatusOr<ValueId> Gradient(ValueId value);
  void AddGradient(ValueId value, ValueId gradient) {
    if (value.valid() && gradient.valid()) arrived_[value].push_back(gradient);
  }

 private:
  void FindDependents(const std::vector<NodeId>& order);
  absl::Status Differentiate(const Node& node);
  absl::Status MissingRule(const Node& node) const;
  std::string PathTo(ValueId value) const;

  Graph& graph_;
  const std::vector<GradientSeed>& seeds_;
  const std::vector<ValueId>& wanted_;
  // By value: a wanted value is an ancestor (or it is one), by nodes that gradients may pass.
  std::vector<bool> depends_;
  std::map<ValueId, std::vector<ValueId>> arrived_;
};

// What one gradient rule sees.
class NodeGradient final : public GradientContext {
 public:
  NodeGradient(Differentiator& walk, NodeId node, GraphBuilder& builder)
      : walk_(walk), node_(node), builder_(builder) {}

  const Node& node() const override { return walk_.graph().node(node_); }
  const Graph& graph() const override { return walk_.graph(); }
  GraphBuilder& builder() override { return builder_; }

  ValueId RequireOutput(int i, const std::string& name_suffix) override {
    Graph& graph = walk_.graph();
    if (Output(i).valid()) return Output(i);
    const ValueId output = graph.AddNodeOutput(node_, i, absl::StrCat(node().name, name_suffix));
    status_.Update(InferNode(graph, node_));
    return output;
  }

  ValueId OutputGradient(int i) const override {
    const ValueId output = Output(i);
    if (!output.valid()) return kNoValue;
    absl::StatusOr<ValueId> gradient = walk_.Gradient(output);
    return gradient.ok() ? *gradient : kNoValue;
  }

  bool NeedsInputGradient(int i) const override {
    const ValueId input = Input(i);
    return walk_.DependsOnWanted(input) && IsFloatingPoint(graph().value(input).type.dtype);
  }

  void SetInputGradient(int i, ValueId gradient) override {
    if (NeedsInputGradient(i)) walk_.AddGradient(Input(i), gradient);
  }

  absl::StatusOr<std::map<ValueId, ValueId>> DifferentiateBody(
      Graph& body, const std::vector<GradientSeed>& seeds,
      const std::vector<ValueId>& wanted) override {
    return AddGradients(body, seeds, wanted);
  }

  const absl::Status& status() const { return status_; }

 private:
  Differentiator& walk_;
  const NodeId node_;
  GraphBuilder& builder_;
  absl::Status status_;
};

void Differentiator::FindDependents(const std::vector<NodeId>& order) {
  depends_.assign(graph_.value_capacity(), false);
  for (ValueId value : wanted_) depends_[value.value] = true;
  for (NodeId id : order) {
    const Node& node = graph_.node(id);
    // No gradient flows through it: Shape, ArgMax.
    if (node.schema != nullptr && node.schema->gradient_kind() == GradientKind::kNone) continue;
    const bool dependent = std::any_of(node.inputs.begin(), node.inputs.end(),
                                       [this](ValueId in) { return DependsOnWanted(in); });
    if (!dependent) continue;
    for (ValueId output : node.outputs) {
      if (output.valid()) depends_[output.value] = true;
    }
  }
}

absl::StatusOr<ValueId> Differentiator::Gradient(ValueId value) {
  const auto it = arrived_.find(value);
  if (it == arrived_.end() || it->second.empty()) return kNoValue;
  std::vector<ValueId>& parts = it->second;
  if (parts.size() == 1) return parts.front();
  GraphBuilder builder(graph_);
  builder.set_phase(Phase::kBackward);
  Origin origin = graph_.value(value).origin;
  if (graph_.value(value).source == ValueSource::kNode) {
    origin.forward_node = graph_.node(graph_.value(value).producer).name;
  } else if (origin.forward_node.empty()) {
    origin.forward_node = graph_.value(parts.front()).origin.forward_node;
  }
  origin.logical_value = graph_.value(value).name;
  origin.is_gradient = true;
  builder.set_origin(origin);
  builder.set_name_prefix("grad/");
  const bool tensor = graph_.value(value).type.kind == ValueKind::kTensor;
  const ValueId sum = builder.WeftOp(tensor ? "AddN" : "SequenceSum", parts);
  WEFT_RETURN_IF_ERROR(builder.status());
  parts = {sum};
  return sum;
}

// wanted -> ... -> value, by names of nodes.
std::string Differentiator::PathTo(ValueId value) const {
  std::vector<std::string> steps;
  while (value.valid()) {
    const ValueDef& def = graph_.value(value);
    if (def.source != ValueSource::kNode) {
      steps.push_back(absl::StrCat("'", def.name, "'"));
      break;
    }
    const Node& node = graph_.node(def.producer);
    steps.push_back(absl::StrCat(node.name, " (", node.op, ")"));
    value = kNoValue;
    for (ValueId input : node.inputs) {
      if (DependsOnWanted(input)) {
        value = input;
        break;
      }
    }
  }
  std::string path;
  for (auto it = steps.rbegin(); it != steps.rend(); ++it) {
    absl::StrAppend(&path, path.empty() ? "" : " -> ", *it);
  }
  return path;
}

absl::Status Differentiator::MissingRule(const Node& node) const {
  ValueId first = kNoValue;
  for (ValueId input : node.inputs) {
    if (!first.valid() && DependsOnWanted(input)) first = input;
  }
  return absl::UnimplementedError(absl::StrCat(
      "node '", node.name, "' (", node.op,
      ") has no gradient rule, but the loss depends on a "
      "parameter through it: ",
      PathTo(first), " -> ", node.name, " (", node.op,
      ") -> loss; freeze the parameters before it (--freeze PATTERN) to train the rest"));
}

absl::Status Differentiator::Differentiate(const Node& node) {
  bool arrived = false;
  bool dependent = false;
  for (ValueId output : node.outputs) {
    if (!output.valid()) continue;
    WEFT_ASSIGN_OR_RETURN(ValueId gradient, Gradient(output));
    arrived = arrived || gradient.valid();
    dependent = dependent || DependsOnWanted(output);
  }
  if (!arrived || !dependent) return absl::OkStatus();
  if (node.schema == nullptr || node.schema->gradient_kind() == GradientKind::kMissing) {
    return MissingRule(node);
  }
  if (node.schema->gradient_kind() == GradientKind::kNone) return absl::OkStatus();
  const std::string name = node.name;
  GraphBuilder builder(graph_);
  builder.set_phase(Phase::kBackward);
  builder.set_stage(node.stage);
  builder.set_origin({name, name, true});
  builder.set_name_prefix(absl::StrCat("grad/", name, "/"));
  NodeGradient context(*this, node.id, builder);
  absl::Status status = node.schema->gradient()(context);
  status.Update(builder.status());
  status.Update(context.status());
  return Annotate(status, absl::StrCat("gradient of node '", name, "'"));
}

absl::StatusOr<std::map<ValueId, ValueId>> Differentiator::Run() {
  WEFT_ASSIGN_OR_RETURN(std::vector<NodeId> order, graph_.TopologicalOrder());
  FindDependents(order);
  for (const GradientSeed& seed : seeds_) AddGradient(seed.value, seed.gradient);
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    WEFT_RETURN_IF_ERROR(Differentiate(graph_.node(*it)));
  }
  std::map<ValueId, ValueId> gradients;
  for (ValueId value : wanted_) {
    WEFT_ASSIGN_OR_RETURN(ValueId gradient, Gradient(value));
    if (gradient.valid()) gradients[value] = gradient;
  }
  return gradients;
}

}  // namespace

absl::StatusOr<std::map<ValueId, ValueId>> AddGradients(Graph& graph,
                                                        const std::vector<GradientSeed>& seeds,
                                                        const std::vector<ValueId>& wanted) {
  return Differentiator(graph, seeds, wanted).Run();
}

}  // namespace weft
