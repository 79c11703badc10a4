#include "placement/sharding/sharding_propagation.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/node_description.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/sharding/sharding_candidates.h"
#include "placement/sharding/sharding_choice.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

// InvalidArgument unless every rank gets at least one row.
absl::Status CheckHint(const std::string& name, const ValueType& type, const AxisSharding& hint,
                       int shards) {
  const std::string begin = absl::StrCat("the plan shards '", name, "', ", type.ToString(), ", as ",
                                         hint.ToString(), " over ", shards, " ranks");
  if (hint.is_partial()) {
    return absl::InvalidArgumentError(absl::StrCat(begin, "; a hint is R or S(axis)"));
  }
  if (hint.is_replicated()) return absl::OkStatus();
  const Shape shape = type.shape.ToConcrete().value_or(Shape());
  if (const absl::Status status = hint.Validate(shape); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(begin, ": ", status.message()));
  }
  const int64_t rows = shape.dim(hint.axis) / hint.blocks;
  if (rows >= shards) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(begin, ", but there are only ", rows, " rows to share"));
}

class Propagator {
 public:
  Propagator(const Graph& graph, const PropagationOptions& options)
      : graph_(graph),
        options_(options),
        scorer_(graph, options.shards),
        accumulated_hint_(graph.value_capacity()) {
    decisions_.nodes.resize(graph.node_capacity());
    decisions_.values.resize(graph.value_capacity());
  }

  absl::StatusOr<ShardingDecisions> Run() {
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    WEFT_RETURN_IF_ERROR(PlaceVariables());
    for (const Variable& variable : graph_.variables()) HintForGradients(variable);
    for (const NodeId id : order) {
      const Node& node = graph_.node(id);
      WEFT_RETURN_IF_ERROR(IsBoundary(node) ? VisitBoundary(node) : Visit(node));
    }
    return std::move(decisions_);
  }

 private:
  AxisSharding& ValueOf(ValueId id) { return decisions_.values[id.value]; }
  AxisSharding CurrentOf(ValueId id) const {
    return id.valid() ? decisions_.values[id.value] : AxisSharding::Replicated();
  }

  absl::Status PlaceVariables();
  void HintForGradients(const Variable& variable);
  absl::Status VisitBoundary(const Node& node);
  bool KeepsVariables(const Node& node, const NodeSharding& candidate) const;
  absl::Status Visit(const Node& node);
  absl::StatusOr<std::vector<AxisSharding>> HintsFor(const Node& node,
                                                     const NodeSharding& candidate) const;

  const Graph& graph_;
  const PropagationOptions& options_;
  const ShardingScorer scorer_;
  ShardingDecisions decisions_;
  // By ValueId of Accumulate outputs: how the variable lies that it leads to.
  std::vector<AxisSharding> accumulated_hint_;
};

absl::Status Propagator::PlaceVariables() {
  for (const Variable& variable : graph_.variables()) {
    const ValueType& type = graph_.value(variable.value).type;
    AxisSharding sharding;
    const auto* hint =
        variable.slot_of.empty() ? FindEntry(options_.hints, variable.name) : nullptr;
    if (hint != nullptr) {
      WEFT_RETURN_IF_ERROR(CheckHint(variable.name, type, hint->second, options_.shards));
      sharding = hint->second;
    }
    decisions_.variables[variable.name] = sharding;
    ValueOf(variable.value) = sharding;
  }
  // Optimizer state lies like its parameter.
  for (const Variable& variable : graph_.variables()) {
    const Variable* parameter = graph_.FindVariable(variable.slot_of);
    if (parameter == nullptr) continue;
    const bool same_shape = ShapeOf(graph_, variable.value) == ShapeOf(graph_, parameter->value);
    if (!same_shape) continue;
    decisions_.variables[variable.name] = decisions_.variables[parameter->name];
    ValueOf(variable.value) = decisions_.variables[parameter->name];
  }
  return absl::OkStatus();
}

// Follows the variable's update back through step nodes of its shape to the sums it is made from.
void Propagator::HintForGradients(const Variable& variable) {
  const Shape shape = ShapeOf(graph_, variable.value);
  std::vector<bool> seen(graph_.value_capacity());
  std::vector<ValueId> pending = {variable.update};
  while (!pending.empty()) {
    const ValueId id = pending.back();
    pending.pop_back();
    if (!id.valid() || seen[id.value] || !(ShapeOf(graph_, id) == shape)) continue;
    seen[id.value] = true;
    const ValueDef& value = graph_.value(id);
    if (value.source != ValueSource::kNode) continue;
    const Node& producer = graph_.node(value.producer);
    if (IsBoundary(producer)) {
      accumulated_hint_[id.value] = decisions_.variables[variable.name];
    } else if (producer.phase == Phase::kUpdate) {
      pending.insert(pending.end(), producer.inputs.begin(), producer.inputs.end());
    }
  }
}

// Shards accumulate as they are; what is Partial is summed first, into the variable's sharding.
absl::Status Propagator::VisitBoundary(const Node& node) {
  const ValueId output = node.outputs[0];
  const std::string& name = graph_.value(output).name;
  AxisSharding sharding = CurrentOf(node.inputs[0]);
  if (const auto fixed = options_.accumulated.find(name); fixed != options_.accumulated.end()) {
    sharding = fixed->second;
  } else if (sharding.is_partial()) {
    sharding = accumulated_hint_[output.value];
  }
  decisions_.nodes[node.id.value] = {{sharding}, {sharding}};
  decisions_.accumulated[name] = sharding;
  ValueOf(output) = sharding;
  return absl::OkStatus();
}

// What the outputs shall be converted to: the plan's hint, else what the candidate makes.
absl::StatusOr<std::vector<AxisSharding>> Propagator::HintsFor(
    const Node& node, const NodeSharding& candidate) const {
  std::vector<AxisSharding> hints = candidate.outputs;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    const ValueDef& value = graph_.value(node.outputs[i]);
    const auto hint = options_.hints.find(value.name);
    if (hint == options_.hints.end()) continue;
    WEFT_RETURN_IF_ERROR(CheckHint(value.name, value.type, hint->second, options_.shards));
    hints[i] = hint->second;
  }
  return hints;
}

// An update runs as the variable lies that it changes: what it would make otherwise had to be
// converted back, and state that is split over the data axis too cannot be.
bool Propagator::KeepsVariables(const Node& node, const NodeSharding& candidate) const {
  if (node.phase != Phase::kUpdate) return true;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (!input.valid() || graph_.value(input).source != ValueSource::kVariable) continue;
    if (candidate.inputs[i] != CurrentOf(input)) return false;
  }
  return true;
}

absl::Status Propagator::Visit(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(graph_, node));
  std::vector<AxisSharding> current;
  for (const ValueId input : node.inputs) current.push_back(CurrentOf(input));
  WEFT_ASSIGN_OR_RETURN(std::vector<NodeSharding> candidates,
                        ShardingCandidates(view, current, options_.shards));
  const bool must_keep =
      std::any_of(candidates.begin(), candidates.end(),
                  [&](const NodeSharding& candidate) { return KeepsVariables(node, candidate); });
  ShardingScore best = {std::numeric_limits<double>::infinity()};
  for (NodeSharding& candidate : candidates) {
    if (must_keep && !KeepsVariables(node, candidate)) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<AxisSharding> hints, HintsFor(node, candidate));
    const ShardingScore score = scorer_.Score(node, candidate, current, hints);
    if (score >= best) continue;
    best = score;
    decisions_.nodes[node.id.value] = std::move(candidate);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].valid()) ValueOf(node.outputs[i]) = hints[i];
    }
  }
  return absl::OkStatus();
}

}  // namespace

namespace {

// With one rank nothing is sharded.
ShardingDecisions NothingSharded(const Graph& graph) {
  ShardingDecisions decisions;
  decisions.nodes.resize(graph.node_capacity());
  decisions.values.resize(graph.value_capacity());
  for (const NodeId id : graph.node_ids()) {
    decisions.nodes[id.value].inputs.resize(graph.node(id).inputs.size());
    decisions.nodes[id.value].outputs.resize(graph.node(id).outputs.size());
  }
  for (const Variable& variable : graph.variables()) decisions.variables[variable.name] = {};
  return decisions;
}

}  // namespace

bool NodeSharding::is_sharded() const {
  const auto is_split = [](const AxisSharding& sharding) { return sharding.is_split(); };
  return std::any_of(inputs.begin(), inputs.end(), is_split) ||
         std::any_of(outputs.begin(), outputs.end(), is_split);
}

absl::StatusOr<ShardingDecisions> PropagateShardings(const Graph& graph,
                                                     const PropagationOptions& options) {
  return options.shards == 1 ? NothingSharded(graph) : Propagator(graph, options).Run();
}

absl::Status CheckShardingHints(const Graph& graph,
                                const std::map<std::string, AxisSharding>& hints) {
  std::vector<std::string> variables;
  for (const Variable& variable : graph.variables()) {
    if (variable.slot_of.empty()) variables.push_back(variable.name);
  }
  for (const auto& [pattern, hint] : hints) {
    const std::optional<ValueId> value = graph.FindValue(pattern);
    const bool is_output = value.has_value() && graph.value(*value).source == ValueSource::kNode;
    const bool fits = std::any_of(variables.begin(), variables.end(),
                                  [&pattern = pattern](const std::string& name) {
                                    return name == pattern || MatchesPattern(pattern, name);
                                  });
    if (fits || is_output) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan shards '", pattern, "' as ", hint.ToString(),
        ", but no variable and no node's output has this name", DidYouMean(pattern, variables)));
  }
  return absl::OkStatus();
}

}  // namespace weft
