#include "placement/search/tensor_costs.h"

#include <limits>

#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "placement/search/local_node_view.h"
#include "placement/search/node_classes.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"

namespace weft {
namespace {

// Up to so many blocks of a dimension are looked at.
constexpr int64_t kMaxBlocks = 8;
// A backward pass costs about two forward passes where a gradient flows.
constexpr double kPassesWithGradient = 3;
// What an update reads and writes, per byte of a parameter, and how many micro-batches share it.
constexpr double kUpdateTraffic = 6;
constexpr double kMicroBatchesPerUpdate = 8;

bool SplitsSomething(const NodeSharding& sharding) {
  const auto is_not_whole = [](const AxisSharding& s) { return s.is_split(); };
  return std::any_of(sharding.inputs.begin(), sharding.inputs.end(), is_not_whole) ||
         std::any_of(sharding.outputs.begin(), sharding.outputs.end(), is_not_whole);
}

// The forward nodes of a topological order, those that are made of parameters alone (a transposed
// weight) right before their first reader: what is chosen there is then weighed at once, and the
// parameters of later layers are still undecided.
std::vector<NodeId> ForwardOrder(const Graph& graph, const std::vector<NodeId>& order) {
  std::vector<int> position(graph.node_capacity());
  std::vector<bool> is_made_of_data(graph.value_capacity());
  for (const ValueId input : graph.inputs()) is_made_of_data[input.value] = true;
  std::vector<bool> is_placed(graph.node_capacity());
  std::vector<NodeId> placed;
  const auto place_with_needs = [&](NodeId id) {
    std::vector<NodeId> pending = {id};
    std::vector<NodeId> needed;
    is_placed[id.value] = true;
    while (!pending.empty()) {
      const NodeId next = pending.back();
      pending.pop_back();
      needed.push_back(next);
      for (const ValueId input : graph.node(next).inputs) {
        if (!input.valid() || graph.value(input).source != ValueSource::kNode) continue;
        const NodeId producer = graph.value(input).producer;
        if (is_placed[producer.value] || !IsForward(graph.node(producer))) continue;
        is_placed[producer.value] = true;
        pending.push_back(producer);
      }
    }
    std::sort(needed.begin(), needed.end(),
              [&](NodeId a, NodeId b) { return position[a.value] < position[b.value]; });
    placed.insert(placed.end(), needed.begin(), needed.end());
  };
  for (size_t i = 0; i < order.size(); ++i) {
    const Node& node = graph.node(order[i]);
    position[order[i].value] = static_cast<int>(i);
    if (!IsForward(node)) continue;
    const bool of_data = std::any_of(
        node.inputs.begin(), node.inputs.end(),
        [&](const ValueId input) { return input.valid() && is_made_of_data[input.value]; });
    if (!of_data) continue;
    for (const ValueId output : node.outputs) {
      if (output.valid()) is_made_of_data[output.value] = true;
    }
    if (!is_placed[order[i].value]) place_with_needs(order[i]);
  }
  for (const NodeId id : order) {
    if (IsForward(graph.node(id)) && !is_placed[id.value]) place_with_needs(id);
  }
  return placed;
}

}  // namespace

void AppendSharding(const AxisSharding& sharding, std::string& key) {
  key.push_back(static_cast<char>('a' + static_cast<int>(sharding.kind)));
  key.append(std::to_string(sharding.axis)).push_back(',');
  key.append(std::to_string(sharding.blocks)).push_back(';');
}

TensorCosts::TensorCosts(const Graph& graph, const CostModel& cost,
                         const TensorSplitOptions& options)
    : graph_(graph),
      cost_(cost),
      options_(options),
      shards_(static_cast<int>(options.workers.size())),
      scorer_(graph, shards_),
      classes_(ClassifyNodes(graph, scorer_.uses())),
      collectives_(cost),
      first_use_(graph.value_capacity(), -1),
      last_use_(graph.value_capacity(), -1),
      forward_readers_(graph.value_capacity()),
      has_gradient_(graph.value_capacity()) {}

absl::StatusOr<std::unique_ptr<TensorCosts>> TensorCosts::Create(
    const Graph& graph, const CostModel& cost, const TensorSplitOptions& options) {
  std::unique_ptr<TensorCosts> created(new TensorCosts(graph, cost, options));
  WEFT_RETURN_IF_ERROR(created->Prepare());
  return created;
}

absl::Status TensorCosts::Prepare() {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
  for (const Variable& variable : graph_.variables()) {
    has_gradient_[variable.value.value] = variable.trainable;
  }
  for (const NodeId id : ForwardOrder(graph_, order)) {
    const Node& node = graph_.node(id);
    bool any = false;
    for (const ValueId input : node.inputs) {
      if (!input.valid()) continue;
      int& first = first_use_[input.value];
      if (first < 0) first = static_cast<int>(forward_.size());
      last_use_[input.value] = static_cast<int>(forward_.size());
      ++forward_readers_[input.value];
      any |= has_gradient_[input.value];
    }
    for (const ValueId output : node.outputs) {
      if (!output.valid()) continue;
      has_gradient_[output.value] = any && IsFloatingPoint(graph_.value(output).type.dtype);
    }
    forward_.push_back(id);
  }
  return FindBlocks();
}

absl::Status TensorCosts::FindBlocks() {
  std::set<int> seen;
  for (const NodeId id : forward_) {
    const Node& node = graph_.node(id);
    if (!seen.insert(classes_[id.value]).second) continue;
    if (node.schema == nullptr || !node.schema->sharding()) continue;
    WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(graph_, node));
    WEFT_ASSIGN_OR_RETURN(const FactorRule rule, node.schema->sharding()(view));
    for (int factor = 0; factor < static_cast<int>(rule.factors.size()); ++factor) {
      for (size_t i = 0; i < rule.inputs.size(); ++i) {
        // What is cut out of a constant (a mask) says nothing of parameters.
        const ValueId input = node.inputs[i];
        if (!input.valid() || graph_.value(input).source == ValueSource::kConstant) continue;
        const auto split = ShardingOfFactor(rule, rule.inputs[i], factor, shards_);
        if (split.has_value() && split->is_split() && split->blocks <= kMaxBlocks) {
          blocks_.insert(split->blocks);
        }
      }
    }
  }
  return absl::OkStatus();
}

std::string TensorCosts::ClassOf(const Node& node) const {
  std::string text = std::to_string(classes_[node.id.value]);
  for (const ValueId input : node.inputs) {
    text.push_back('|');
    if (!input.valid()) continue;
    text.append(std::to_string(forward_readers_[input.value]));
    if (has_gradient_[input.value]) text.push_back('g');
  }
  return text;
}

bool TensorCosts::IsReadBackward(ValueId value) const {
  const std::vector<Graph::Use>& uses = scorer_.uses()[value.value];
  return std::any_of(uses.begin(), uses.end(),
                     [this](const Graph::Use& use) { return IsBackward(graph_.node(use.node)); });
}

const AxisSharding* TensorCosts::GivenFor(ValueId variable) const {
  const auto* given = FindEntry(options_.given, graph_.VariableOf(variable)->name);
  return given == nullptr ? nullptr : &given->second;
}

bool TensorCosts::CanHold(ValueId value, const AxisSharding& sharding) const {
  if (sharding.is_replicated()) return true;
  const Shape shape = ShapeOf(graph_, value);
  return sharding.is_split() && sharding.Validate(shape).ok() &&
         shape.dim(sharding.axis) / sharding.blocks >= shards_;
}

const NodeSharding& TensorCosts::Decide(
    const Node& node, const std::vector<NodeSharding>& candidates,
    const std::vector<AxisSharding>& current,
    const std::vector<std::optional<AxisSharding>>& hints) const {
  ShardingScore best = {std::numeric_limits<double>::infinity()};
  size_t chosen = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    std::vector<AxisSharding> hinted = candidates[i].outputs;
    for (size_t output = 0; output < hints.size(); ++output) {
      if (hints[output].has_value()) hinted[output] = *hints[output];
    }
    const ShardingScore score = scorer_.Score(node, candidates[i], current, hinted);
    if (score >= best) continue;
    best = score;
    chosen = i;
  }
  return candidates[chosen];
}

double TensorCosts::ConversionSeconds(ValueId value, const AxisSharding& from,
                                      const AxisSharding& to) {
  std::optional<CollectiveKind> kind = CollectiveOfConversion(from, to);
  if (!kind.has_value()) return 0;
  // As PropagateShardings counts: a sum that is scattered is gathered later.
  if (from.is_partial()) kind = CollectiveKind::kAllReduce;
  const double seconds = collectives_.Seconds({*kind, BytesOf(graph_, value)}, options_.workers);
  // The readers of a sum share it.
  return from.is_partial() ? seconds / Readers(value) : seconds;
}

double TensorCosts::BackwardSeconds(ValueId value, const AxisSharding& from, const AxisSharding& to,
                                    bool node_is_split) {
  if (!has_gradient_[value.value]) return 0;
  const int64_t bytes = BytesOf(graph_, value);
  if (to.is_replicated() && node_is_split) {
    return collectives_.Seconds({CollectiveKind::kAllReduce, bytes}, options_.workers) /
           Readers(value);
  }
  if (from.is_split()) return ConversionSeconds(value, from, to);
  if (!to.is_split()) return 0;
  // The gradient of a slice is gathered: of a variable once per step.
  const double seconds =
      collectives_.Seconds({CollectiveKind::kGatherOrScatter, bytes}, options_.workers) /
      Readers(value);
  const bool once = graph_.value(value).source == ValueSource::kVariable;
  return once ? seconds / kMicroBatchesPerUpdate : seconds;
}

double TensorCosts::KeepingSeconds(ValueId variable, const AxisSharding& sharding) const {
  const double whole = static_cast<double>(BytesOf(graph_, variable));
  const double local = sharding.is_split() ? whole / shards_ : whole;
  const Cost update = {local / 4, kUpdateTraffic * local};
  const double seconds = cost_.WorkSeconds(update, graph_.value(variable).type.dtype,
                                           options_.workers.front(), options_.threads);
  return seconds / kMicroBatchesPerUpdate + options_.seconds_per_byte * local;
}

double TensorCosts::SumSeconds(ValueId value) {
  return collectives_.Seconds({CollectiveKind::kAllReduce, BytesOf(graph_, value)},
                              options_.workers);
}

double TensorCosts::HintSeconds(ValueId value, const AxisSharding& from, const AxisSharding& to) {
  std::optional<CollectiveKind> kind = CollectiveOfConversion(from, to);
  if (from == to) return 0;
  const int64_t bytes = BytesOf(graph_, value);
  double seconds = 0;
  if (kind.has_value()) {
    // As PropagateShardings counts: a sum that is scattered is gathered later.
    if (from.is_partial()) kind = CollectiveKind::kAllReduce;
    seconds = collectives_.Seconds({*kind, bytes}, options_.workers);
  }
  if (!has_gradient_[value.value]) return seconds;
  if (from.is_split()) return 2 * seconds;
  if (!to.is_split()) return seconds;
  return seconds +
         collectives_.Seconds({CollectiveKind::kGatherOrScatter, bytes}, options_.workers);
}

double TensorCosts::NodeSeconds(const GraphNodeView& view, const NodeSharding& sharding,
                                const std::vector<AxisSharding>& current) {
  const Node& node = view.node();
  const bool is_split = SplitsSomething(sharding);
  double seconds = 0;
  bool gradient = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (!input.valid() || graph_.value(input).source == ValueSource::kConstant) continue;
    gradient |= has_gradient_[input.value];
    seconds += ConversionSeconds(input, current[i], sharding.inputs[i]);
    seconds += BackwardSeconds(input, current[i], sharding.inputs[i], is_split);
  }
  const LocalNodeView local(view, sharding, shards_);
  const double once = cost_.NodeSeconds(local, options_.workers.front(), options_.threads);
  return seconds + once * (gradient ? kPassesWithGradient : 1);
}

absl::StatusOr<double> TensorCosts::SecondsOf(const std::map<std::string, AxisSharding>& hints) {
  PropagationOptions propagation;
  propagation.shards = shards_;
  propagation.hints = hints;
  WEFT_ASSIGN_OR_RETURN(const ShardingDecisions decisions, PropagateShardings(graph_, propagation));
  double seconds = 0;
  std::vector<bool> is_counted(graph_.value_capacity());
  for (const NodeId id : forward_) {
    const Node& node = graph_.node(id);
    const NodeSharding& sharding = decisions.nodes[id.value];
    std::vector<AxisSharding> current(node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (!input.valid()) continue;
      current[i] = decisions.values[input.value];
      if (!IsVariable(input) || is_counted[input.value]) continue;
      is_counted[input.value] = true;
      seconds += KeepingSeconds(input, current[i]);
    }
    WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(graph_, node));
    seconds += NodeSeconds(view, sharding, current);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId output = node.outputs[i];
      if (!output.valid()) continue;
      seconds += HintSeconds(output, sharding.outputs[i], decisions.values[output.value]);
    }
  }
  return seconds;
}

}  // namespace weft
