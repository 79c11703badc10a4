#include "placement/search/tensor_split.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "placement/graph_node_view.h"
#include "placement/name_pattern.h"
#include "placement/search/collective_costs.h"
#include "placement/search/local_node_view.h"
#include "placement/search/node_classes.h"
#include "placement/sharding_candidates.h"
#include "placement/sharding_choice.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Blocks of a dimension that a parameter may be split in: those that some rule speaks of (the three
// parts of a fused projection), up to this many.
constexpr int64_t kMostBlocks = 8;
// A backward pass costs about two forward passes where a gradient flows.
constexpr double kPassesWithGradient = 3;
// What an update reads and writes, per byte of a parameter, and how many micro-batches share it.
constexpr double kUpdateTraffic = 6;
constexpr double kMicroBatchesPerUpdate = 8;

using Variables = std::vector<std::pair<int, AxisSharding>>;  // by input of a node

// One way to run a node.
struct Option {
  Variables variables;  // those that it decides
  NodeSharding sharding;
  double seconds = 0;
};

struct LiveValue {
  int value = 0;
  AxisSharding sharding;
};

// A decided variable, and those decided before it.
struct Decision {
  int previous = -1;
  int variable = 0;  // ValueId
  AxisSharding sharding;
};

struct State {
  std::vector<LiveValue> live;  // by value
  double seconds = 0;
  int decision = -1;  // into the search's decisions
};

void AppendSharding(const AxisSharding& sharding, std::string& key) {
  key.push_back(static_cast<char>('a' + static_cast<int>(sharding.kind)));
  key.append(std::to_string(sharding.axis)).push_back(',');
  key.append(std::to_string(sharding.blocks)).push_back(';');
}

bool SplitsSomething(const NodeSharding& sharding) {
  const auto is_not_whole = [](const AxisSharding& s) { return s.is_split(); };
  return std::any_of(sharding.inputs.begin(), sharding.inputs.end(), is_not_whole) ||
         std::any_of(sharding.outputs.begin(), sharding.outputs.end(), is_not_whole);
}

class SplitSearch {
 public:
  SplitSearch(const Graph& graph, const CostModel& cost, const TensorSplitOptions& options)
      : graph_(graph),
        cost_(cost),
        options_(options),
        shards_(static_cast<int>(options.workers.size())),
        scorer_(graph, shards_),
        classes_(ClassifyNodes(graph, scorer_.uses())),
        collectives_(cost),
        last_use_(graph.value_capacity(), -1),
        forward_readers_(graph.value_capacity()),
        has_gradient_(graph.value_capacity()) {}

  absl::StatusOr<TensorSplit> Run() {
    WEFT_RETURN_IF_ERROR(Prepare());
    std::vector<State> states(1);
    for (size_t position = 0; position < forward_.size(); ++position) {
      WEFT_RETURN_IF_ERROR(Advance(static_cast<int>(position), states));
    }
    return Result(states.front());
  }

 private:
  using Options = std::vector<Option>;

  absl::Status Prepare();
  absl::Status FindBlocks();
  bool IsUndecided(const State& state, ValueId value) const;
  AxisSharding CurrentOf(const State& state, ValueId value) const;
  absl::Status Advance(int position, std::vector<State>& states);
  State Next(const State& state, const Node& node, int position, const Option& option);
  absl::StatusOr<const Options*> OptionsOf(const State& state, const Node& node);
  absl::StatusOr<Options> MakeOptions(const Node& node, const std::vector<AxisSharding>& current,
                                      const std::vector<int>& undecided);
  absl::StatusOr<std::vector<Variables>> WaysToRead(const GraphNodeView& view,
                                                    std::vector<AxisSharding> current,
                                                    const std::vector<int>& undecided) const;
  bool CanHold(ValueId variable, const AxisSharding& sharding) const;
  absl::StatusOr<NodeSharding> Decide(const GraphNodeView& view,
                                      const std::vector<AxisSharding>& current) const;
  double SecondsOf(const GraphNodeView& view, const NodeSharding& sharding,
                   const std::vector<AxisSharding>& current, const Variables& decided);
  double ConversionSeconds(ValueId value, const AxisSharding& from, const AxisSharding& to);
  double BackwardSeconds(ValueId value, const AxisSharding& from, const AxisSharding& to,
                         bool node_is_split);
  double KeepingSeconds(ValueId variable, const AxisSharding& sharding) const;
  // Those that the walk comes to: each bears its part of what they share.
  double Readers(ValueId value) const { return std::max(1, forward_readers_[value.value]); }
  TensorSplit Result(const State& state) const;

  const Graph& graph_;
  const CostModel& cost_;
  const TensorSplitOptions& options_;
  const int shards_;
  const ShardingScorer scorer_;
  const std::vector<int> classes_;
  CollectiveCosts collectives_;
  std::vector<NodeId> forward_;
  std::vector<int> last_use_;         // by ValueId: position in forward_; -1: not read
  std::vector<int> forward_readers_;  // by ValueId
  std::vector<bool> has_gradient_;    // by ValueId
  std::set<int64_t> blocks_ = {1};
  std::vector<Decision> decisions_;
  absl::flat_hash_map<std::string, Options> known_;
};

absl::Status SplitSearch::Prepare() {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
  for (const Variable& variable : graph_.variables()) {
    has_gradient_[variable.value.value] = variable.trainable;
  }
  for (const NodeId id : order) {
    const Node& node = graph_.node(id);
    if (!IsForward(node)) continue;
    bool any = false;
    for (const ValueId input : node.inputs) {
      if (!input.valid()) continue;
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

absl::Status SplitSearch::FindBlocks() {
  std::set<int> seen;
  for (const NodeId id : forward_) {
    const Node& node = graph_.node(id);
    if (!seen.insert(classes_[id.value]).second) continue;
    if (node.schema == nullptr || !node.schema->sharding()) continue;
    WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(graph_, node));
    WEFT_ASSIGN_OR_RETURN(const FactorRule rule, node.schema->sharding()(view));
    for (int factor = 0; factor < static_cast<int>(rule.factors.size()); ++factor) {
      for (const OperandFactors& operand : rule.inputs) {
        const auto split = ShardingOfFactor(rule, operand, factor, shards_);
        if (split.has_value() && split->is_split() && split->blocks <= kMostBlocks) {
          blocks_.insert(split->blocks);
        }
      }
    }
  }
  return absl::OkStatus();
}

const LiveValue* FindLive(const State& state, ValueId value) {
  const auto found =
      std::lower_bound(state.live.begin(), state.live.end(), value.value,
                       [](const LiveValue& live, int wanted) { return live.value < wanted; });
  return found != state.live.end() && found->value == value.value ? &*found : nullptr;
}

bool SplitSearch::IsUndecided(const State& state, ValueId value) const {
  return value.valid() && graph_.value(value).source == ValueSource::kVariable &&
         FindLive(state, value) == nullptr;
}

AxisSharding SplitSearch::CurrentOf(const State& state, ValueId value) const {
  const LiveValue* const live = value.valid() ? FindLive(state, value) : nullptr;
  return live == nullptr ? AxisSharding::Replicated() : live->sharding;
}

State SplitSearch::Next(const State& state, const Node& node, int position, const Option& option) {
  State next;
  next.seconds = state.seconds + option.seconds;
  next.decision = state.decision;
  for (const LiveValue& live : state.live) {
    if (last_use_[live.value] > position) next.live.push_back(live);
  }
  for (const auto& [input, sharding] : option.variables) {
    const int variable = node.inputs[input].value;
    if (last_use_[variable] > position) next.live.push_back({variable, sharding});
    if (!sharding.is_split()) continue;
    decisions_.push_back({next.decision, variable, sharding});
    next.decision = static_cast<int>(decisions_.size()) - 1;
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid() || last_use_[node.outputs[i].value] < 0) continue;
    next.live.push_back({node.outputs[i].value, option.sharding.outputs[i]});
  }
  std::sort(next.live.begin(), next.live.end(),
            [](const LiveValue& a, const LiveValue& b) { return a.value < b.value; });
  return next;
}

// States in which the same values lie the same differ in the past only: the cheapest is kept.
absl::Status SplitSearch::Advance(int position, std::vector<State>& states) {
  const Node& node = graph_.node(forward_[position]);
  std::vector<State> reached;
  absl::flat_hash_map<std::string, size_t> index;
  for (const State& state : states) {
    WEFT_ASSIGN_OR_RETURN(const Options* const options, OptionsOf(state, node));
    for (const Option& option : *options) {
      State next = Next(state, node, position, option);
      std::string key;
      for (const LiveValue& live : next.live) {
        key.append(std::to_string(live.value));
        AppendSharding(live.sharding, key);
      }
      const auto [known, is_new] = index.try_emplace(std::move(key), reached.size());
      if (is_new) {
        reached.push_back(std::move(next));
      } else if (next.seconds < reached[known->second].seconds) {
        reached[known->second] = std::move(next);
      }
    }
  }
  std::stable_sort(reached.begin(), reached.end(),
                   [](const State& a, const State& b) { return a.seconds < b.seconds; });
  if (static_cast<int>(reached.size()) > options_.beam) reached.resize(options_.beam);
  states = std::move(reached);
  return absl::OkStatus();
}

absl::StatusOr<const SplitSearch::Options*> SplitSearch::OptionsOf(const State& state,
                                                                   const Node& node) {
  std::string key = std::to_string(classes_[node.id.value]);
  std::vector<AxisSharding> current;
  std::vector<int> undecided;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    current.push_back(CurrentOf(state, node.inputs[i]));
    key.push_back('|');
    if (IsUndecided(state, node.inputs[i])) {
      const std::string& name = graph_.VariableOf(node.inputs[i])->name;
      const auto* given = FindEntry(options_.given, name);
      undecided.push_back(static_cast<int>(i));
      key.append(given == nullptr ? "?" : given->second.ToString());
    } else {
      AppendSharding(current.back(), key);
    }
    if (node.inputs[i].valid() && has_gradient_[node.inputs[i].value]) key.push_back('g');
  }
  const auto found = known_.find(key);
  if (found != known_.end()) return &found->second;
  WEFT_ASSIGN_OR_RETURN(Options options, MakeOptions(node, current, undecided));
  // Pointers into the map are used before the next insertion only.
  return &known_.emplace(std::move(key), std::move(options)).first->second;
}

bool SplitSearch::CanHold(ValueId variable, const AxisSharding& sharding) const {
  if (sharding.is_replicated()) return true;
  const Shape shape = ShapeOf(graph_, variable);
  return sharding.is_split() && sharding.Validate(shape).ok() &&
         shape.dim(sharding.axis) / sharding.blocks >= shards_;
}

absl::StatusOr<std::vector<Variables>> SplitSearch::WaysToRead(
    const GraphNodeView& view, std::vector<AxisSharding> current,
    const std::vector<int>& undecided) const {
  std::vector<NodeSharding> candidates;
  const auto add = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(auto more, ShardingCandidates(view, current, shards_));
    candidates.insert(candidates.end(), more.begin(), more.end());
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(add());
  for (const int input : undecided) {
    for (int axis = 0; axis < view.InputShape(input).rank(); ++axis) {
      for (const int64_t blocks : blocks_) {
        current[input] = AxisSharding::Split(axis, blocks);
        if (CanHold(view.node().inputs[input], current[input])) WEFT_RETURN_IF_ERROR(add());
      }
    }
    current[input] = AxisSharding::Replicated();
  }
  std::vector<Variables> ways;
  for (const NodeSharding& candidate : candidates) {
    Variables way;
    bool possible = true;
    for (const int input : undecided) {
      const ValueId value = view.node().inputs[input];
      const auto* given = FindEntry(options_.given, graph_.VariableOf(value)->name);
      AxisSharding sharding = candidate.inputs[input];
      if (given != nullptr) sharding = given->second;
      possible &= CanHold(value, sharding);
      way.push_back({input, sharding});
    }
    if (possible && std::find(ways.begin(), ways.end(), way) == ways.end()) ways.push_back(way);
  }
  return ways;
}

// As PropagateShardings does.
absl::StatusOr<NodeSharding> SplitSearch::Decide(const GraphNodeView& view,
                                                 const std::vector<AxisSharding>& current) const {
  WEFT_ASSIGN_OR_RETURN(std::vector<NodeSharding> candidates,
                        ShardingCandidates(view, current, shards_));
  ShardingScore best = {std::numeric_limits<double>::infinity(), 0};
  size_t chosen = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const ShardingScore score =
        scorer_.Score(view.node(), candidates[i], current, candidates[i].outputs);
    if (score >= best) continue;
    best = score;
    chosen = i;
  }
  return candidates[chosen];
}

absl::StatusOr<SplitSearch::Options> SplitSearch::MakeOptions(
    const Node& node, const std::vector<AxisSharding>& current, const std::vector<int>& undecided) {
  WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(graph_, node));
  std::vector<Variables> ways = {{}};
  if (!undecided.empty()) {
    WEFT_ASSIGN_OR_RETURN(ways, WaysToRead(view, current, undecided));
  }
  Options options;
  for (const Variables& way : ways) {
    std::vector<AxisSharding> with = current;
    for (const auto& [input, sharding] : way) with[input] = sharding;
    WEFT_ASSIGN_OR_RETURN(NodeSharding sharding, Decide(view, with));
    const double seconds = SecondsOf(view, sharding, with, way);
    options.push_back({way, std::move(sharding), seconds});
  }
  return options;
}

double SplitSearch::ConversionSeconds(ValueId value, const AxisSharding& from,
                                      const AxisSharding& to) {
  std::optional<CollectiveKind> kind = CollectiveOfConversion(from, to);
  if (!kind.has_value()) return 0;
  // As PropagateShardings counts: a sum that is scattered is gathered later.
  if (from.is_partial()) kind = CollectiveKind::kAllReduce;
  const double seconds = collectives_.Seconds({*kind, BytesOf(graph_, value)}, options_.workers);
  // The readers of a sum share it.
  return from.is_partial() ? seconds / Readers(value) : seconds;
}

double SplitSearch::BackwardSeconds(ValueId value, const AxisSharding& from, const AxisSharding& to,
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
      collectives_.Seconds({CollectiveKind::kRing, bytes}, options_.workers) / Readers(value);
  const bool once = graph_.value(value).source == ValueSource::kVariable;
  return once ? seconds / kMicroBatchesPerUpdate : seconds;
}

double SplitSearch::KeepingSeconds(ValueId variable, const AxisSharding& sharding) const {
  const double whole = static_cast<double>(BytesOf(graph_, variable));
  const double local = sharding.is_split() ? whole / shards_ : whole;
  const Cost update = {local / 4, kUpdateTraffic * local};
  const double seconds = cost_.WorkSeconds(update, graph_.value(variable).type.dtype,
                                           options_.workers.front(), options_.threads);
  return seconds / kMicroBatchesPerUpdate + options_.seconds_per_byte * local;
}

double SplitSearch::SecondsOf(const GraphNodeView& view, const NodeSharding& sharding,
                              const std::vector<AxisSharding>& current, const Variables& decided) {
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
  for (const auto& [input, how] : decided) seconds += KeepingSeconds(node.inputs[input], how);
  const LocalNodeView local(view, sharding, shards_);
  const double once = cost_.NodeSeconds(local, options_.workers.front(), options_.threads);
  return seconds + once * (gradient ? kPassesWithGradient : 1);
}

TensorSplit SplitSearch::Result(const State& state) const {
  TensorSplit split;
  split.seconds = state.seconds;
  for (int at = state.decision; at >= 0; at = decisions_[at].previous) {
    const Variable* const variable = graph_.VariableOf(ValueId(decisions_[at].variable));
    if (variable == nullptr || !variable->slot_of.empty()) continue;
    split.shardings[variable->name] = decisions_[at].sharding;
  }
  return split;
}

}  // namespace

absl::StatusOr<TensorSplit> FindTensorSplit(const Graph& graph, const CostModel& cost,
                                            const TensorSplitOptions& options) {
  return SplitSearch(graph, cost, options).Run();
}

}  // namespace weft
