#include "placement/search/tensor_split.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/search/tensor_costs.h"
#include "placement/sharding/sharding_candidates.h"
#include "placement/sharding/sharding_propagation.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Where memory is to be saved, saving all that a perfect split would save is worth so many times
// the time of a micro-batch. So matrices are split, and vectors are not that would be gathered.
constexpr double kTimesForMemory = 10;
// Where that splits nothing either: as much as there is.
constexpr double kSecondsPerKeptByte = 1;

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

// A decided variable, or a made value that is hinted, and those decided before it.
struct Decision {
  int previous = -1;
  int value = 0;  // ValueId
  AxisSharding sharding;
};

struct State {
  std::vector<LiveValue> live;  // by value
  double seconds = 0;
  double pending = 0;  // of the sums over ranks that live values still are
  int decision = -1;   // into the search's decisions

  // What states are compared by: a weight split by rows would seem cheap until its sum is read.
  double Outlook() const { return seconds + pending; }
};

class SplitSearch {
 public:
  explicit SplitSearch(TensorCosts& costs) : costs_(costs), graph_(costs.graph()) {}

  absl::StatusOr<TensorSplit> Run() {
    std::vector<State> states(1);
    for (size_t position = 0; position < costs_.forward().size(); ++position) {
      WEFT_RETURN_IF_ERROR(Advance(static_cast<int>(position), states));
    }
    return Result(states.front());
  }

 private:
  using Options = std::vector<Option>;

  bool IsUndecided(const State& state, ValueId value) const;
  AxisSharding CurrentOf(const State& state, ValueId value) const;
  absl::Status Advance(int position, std::vector<State>& states);
  absl::Status AddNext(const State& state, const Node& node, int position,
                       std::vector<State>& next);
  bool CanHint(ValueId value) const;
  bool CanGather(const Node& node, size_t input, int position) const;
  void Gather(ValueId value, State& state);
  State Gathered(const State& state, const Node& node, const std::set<size_t>& inputs);
  void AddOption(const State& state, const Node& node, int position, const Option& option,
                 std::vector<State>& next);
  State Next(const State& state, const Node& node, int position, const Option& option);
  absl::StatusOr<const Options*> OptionsOf(const State& state, const Node& node);
  absl::StatusOr<Options> MakeOptions(const Node& node, const std::vector<AxisSharding>& current,
                                      const std::vector<int>& undecided);
  absl::StatusOr<std::vector<Variables>> WaysToRead(const GraphNodeView& view,
                                                    std::vector<AxisSharding> current,
                                                    const std::vector<int>& undecided) const;
  TensorSplit Result(const State& state) const;

  TensorCosts& costs_;
  const Graph& graph_;
  std::vector<Decision> decisions_;
  absl::flat_hash_map<std::string, Options> known_;
};

const LiveValue* FindLive(const State& state, ValueId value) {
  const auto found =
      std::lower_bound(state.live.begin(), state.live.end(), value.value,
                       [](const LiveValue& live, int wanted) { return live.value < wanted; });
  return found != state.live.end() && found->value == value.value ? &*found : nullptr;
}

bool SplitSearch::IsUndecided(const State& state, ValueId value) const {
  return costs_.IsVariable(value) && FindLive(state, value) == nullptr;
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
    if (costs_.LastUse(ValueId(live.value)) > position) next.live.push_back(live);
  }
  for (const auto& [input, sharding] : option.variables) {
    const int variable = node.inputs[input].value;
    if (costs_.LastUse(ValueId(variable)) > position) next.live.push_back({variable, sharding});
    if (!sharding.is_split()) continue;
    decisions_.push_back({next.decision, variable, sharding});
    next.decision = static_cast<int>(decisions_.size()) - 1;
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid() || costs_.LastUse(node.outputs[i]) < 0) continue;
    next.live.push_back({node.outputs[i].value, option.sharding.outputs[i]});
  }
  std::sort(next.live.begin(), next.live.end(),
            [](const LiveValue& a, const LiveValue& b) { return a.value < b.value; });
  for (const LiveValue& live : next.live) {
    if (live.sharding.is_partial()) next.pending += costs_.SumSeconds(ValueId(live.value));
  }
  return next;
}

// A node of the logical graph makes it, which a plan can name.
bool SplitSearch::CanHint(ValueId value) const {
  if (!value.valid() || graph_.value(value).source != ValueSource::kNode) return false;
  const Graph* const logical = costs_.options().uncounted;
  return logical == nullptr || logical->FindValue(graph_.value(value).name).has_value();
}

// A hint holds for all readers of a value, of which this is the first.
bool SplitSearch::CanGather(const Node& node, size_t input, int position) const {
  const ValueId value = node.inputs[input];
  return CanHint(value) && costs_.FirstUse(value) == position;
}

// Hints a live value that is split to lie whole.
void SplitSearch::Gather(ValueId value, State& state) {
  for (LiveValue& live : state.live) {
    if (live.value != value.value || !live.sharding.is_split()) continue;
    state.seconds += costs_.HintSeconds(value, live.sharding, AxisSharding::Replicated());
    live.sharding = AxisSharding::Replicated();
    decisions_.push_back({state.decision, value.value, live.sharding});
    state.decision = static_cast<int>(decisions_.size()) - 1;
  }
}

// The state in which these inputs of a node were made whole where they are made.
State SplitSearch::Gathered(const State& state, const Node& node, const std::set<size_t>& inputs) {
  State gathered = state;
  for (const size_t input : inputs) Gather(node.inputs[input], gathered);
  return gathered;
}

// Rows of an embedding that is split by columns may lie as they are made, or whole. Other nodes
// that read a parameter are left alone: two states for each product would crowd the beam.
void SplitSearch::AddOption(const State& state, const Node& node, int position,
                            const Option& option, std::vector<State>& next) {
  next.push_back(Next(state, node, position, option));
  bool reads_parameter = false;
  bool reads_indices = false;
  for (const ValueId input : node.inputs) {
    if (!input.valid()) continue;
    const ValueDef& value = graph_.value(input);
    reads_parameter = reads_parameter || value.source == ValueSource::kVariable;
    const bool is_data = value.source == ValueSource::kNode || value.source == ValueSource::kInput;
    reads_indices = reads_indices || (is_data && IsInteger(value.type.dtype));
  }
  if (!reads_parameter || !reads_indices || node.outputs.empty()) return;
  if (!option.sharding.outputs[0].is_split() || !CanHint(node.outputs[0])) return;
  State whole = next.back();
  Gather(node.outputs[0], whole);
  next.push_back(std::move(whole));
}

// A node that needs an axis whole which is split would be split along another one, of samples most
// often, and all behind it: weights that are split by columns would be gathered for it. There the
// value is hinted to lie whole instead. (An embedding split by columns, before a normalization.)
absl::Status SplitSearch::AddNext(const State& state, const Node& node, int position,
                                  std::vector<State>& next) {
  WEFT_ASSIGN_OR_RETURN(const Options* options, OptionsOf(state, node));
  std::set<size_t> exchanged;
  for (const Option& option : *options) {
    std::set<size_t> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const AxisSharding from = CurrentOf(state, node.inputs[i]);
      const AxisSharding& to = option.sharding.inputs[i];
      const bool exchanges = from.is_split() && to.is_split() && from.axis != to.axis;
      if (exchanges && CanGather(node, i, position)) inputs.insert(i);
    }
    if (inputs.empty()) AddOption(state, node, position, option, next);
    exchanged.insert(inputs.begin(), inputs.end());
  }
  if (exchanged.empty()) return absl::OkStatus();
  const State gathered = Gathered(state, node, exchanged);
  WEFT_ASSIGN_OR_RETURN(options, OptionsOf(gathered, node));
  for (const Option& option : *options) AddOption(gathered, node, position, option, next);
  return absl::OkStatus();
}

// States in which the same values lie the same differ in the past only: the cheapest is kept.
absl::Status SplitSearch::Advance(int position, std::vector<State>& states) {
  const Node& node = graph_.node(costs_.forward()[position]);
  std::vector<State> reached;
  absl::flat_hash_map<std::string, size_t> index;
  for (const State& state : states) {
    std::vector<State> all_next;
    WEFT_RETURN_IF_ERROR(AddNext(state, node, position, all_next));
    for (State& next : all_next) {
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
                   [](const State& a, const State& b) { return a.Outlook() < b.Outlook(); });
  if (static_cast<int>(reached.size()) > costs_.options().beam)
    reached.resize(costs_.options().beam);
  states = std::move(reached);
  return absl::OkStatus();
}

absl::StatusOr<const SplitSearch::Options*> SplitSearch::OptionsOf(const State& state,
                                                                   const Node& node) {
  std::string key = costs_.ClassOf(node);
  std::vector<AxisSharding> current;
  std::vector<int> undecided;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    current.push_back(CurrentOf(state, node.inputs[i]));
    key.push_back('|');
    if (IsUndecided(state, node.inputs[i])) {
      const AxisSharding* const given = costs_.GivenFor(node.inputs[i]);
      undecided.push_back(static_cast<int>(i));
      key.append(given == nullptr ? "?" : given->ToString());
    } else {
      AppendSharding(current.back(), key);
    }
  }
  const auto found = known_.find(key);
  if (found != known_.end()) return &found->second;
  WEFT_ASSIGN_OR_RETURN(Options options, MakeOptions(node, current, undecided));
  // Pointers into the map are used before the next insertion only.
  return &known_.emplace(std::move(key), std::move(options)).first->second;
}

absl::StatusOr<std::vector<Variables>> SplitSearch::WaysToRead(
    const GraphNodeView& view, std::vector<AxisSharding> current,
    const std::vector<int>& undecided) const {
  std::vector<NodeSharding> candidates;
  const auto add = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(auto more, ShardingCandidates(view, current, costs_.shards()));
    candidates.insert(candidates.end(), more.begin(), more.end());
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(add());
  for (const int input : undecided) {
    for (int axis = 0; axis < view.InputShape(input).rank(); ++axis) {
      for (const int64_t blocks : costs_.blocks()) {
        current[input] = AxisSharding::Split(axis, blocks);
        if (costs_.CanHold(view.node().inputs[input], current[input])) WEFT_RETURN_IF_ERROR(add());
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
      const AxisSharding* const given = costs_.GivenFor(value);
      AxisSharding sharding = candidate.inputs[input];
      if (given != nullptr) sharding = *given;
      possible &= costs_.CanHold(value, sharding);
      way.push_back({input, sharding});
    }
    if (possible && std::find(ways.begin(), ways.end(), way) == ways.end()) ways.push_back(way);
  }
  return ways;
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
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeSharding> candidates,
                          ShardingCandidates(view, with, costs_.shards()));
    const NodeSharding& sharding = costs_.Decide(node, candidates, with);
    double seconds = costs_.NodeSeconds(view, sharding, with);
    for (const auto& [input, how] : way) seconds += costs_.KeepingSeconds(node.inputs[input], how);
    options.push_back({way, sharding, seconds});
  }
  return options;
}

TensorSplit SplitSearch::Result(const State& state) const {
  TensorSplit split;
  split.seconds = state.seconds;
  for (int at = state.decision; at >= 0; at = decisions_[at].previous) {
    const ValueDef& value = graph_.value(ValueId(decisions_[at].value));
    const Variable* const variable = graph_.VariableOf(value.id);
    if (variable != nullptr && !variable->slot_of.empty()) continue;
    split.shardings[variable != nullptr ? variable->name : value.name] = decisions_[at].sharding;
  }
  return split;
}

}  // namespace

absl::StatusOr<TensorSplit> FindTensorSplit(const Graph& graph, const CostModel& cost,
                                            const TensorSplitOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const auto costs, TensorCosts::Create(graph, cost, options));
  return SplitSearch(*costs).Run();
}

namespace {

bool SplitsAny(const std::map<std::string, AxisSharding>& shardings) {
  return std::any_of(shardings.begin(), shardings.end(),
                     [](const auto& hint) { return hint.second.is_split(); });
}

double ParameterBytes(const Graph& graph) {
  double bytes = 0;
  for (const Variable& variable : graph.variables()) {
    if (variable.slot_of.empty()) bytes += static_cast<double>(BytesOf(graph, variable.value));
  }
  return bytes;
}

// The split of least time where a byte that a rank keeps has a price. `fastest`: where it has none.
absl::StatusOr<TensorSplit> SplitForMemory(const Graph& graph, const CostModel& cost,
                                           TensorSplitOptions options, const TensorSplit& fastest) {
  const double shards = static_cast<double>(options.workers.size());
  const double saved = ParameterBytes(graph) * (1 - 1 / shards);
  if (saved > 0) {
    options.seconds_per_byte = kTimesForMemory * fastest.seconds / saved;
    WEFT_ASSIGN_OR_RETURN(TensorSplit split, FindTensorSplit(graph, cost, options));
    if (SplitsAny(split.shardings)) return split;
  }
  options.seconds_per_byte = kSecondsPerKeptByte;
  return FindTensorSplit(graph, cost, options);
}

}  // namespace

absl::StatusOr<std::map<std::string, AxisSharding>> ChooseTensorShardings(
    const Graph& graph, const CostModel& cost, const TensorSplitOptions& options) {
  Graph expanded = graph.Clone();
  WEFT_RETURN_IF_ERROR(ExpandForSplits(expanded, static_cast<int>(options.workers.size())));
  WEFT_ASSIGN_OR_RETURN(TensorSplit best, FindTensorSplit(expanded, cost, options));
  if (options.saves_memory || !SplitsAny(best.shardings)) {
    WEFT_ASSIGN_OR_RETURN(best, SplitForMemory(expanded, cost, options, best));
  }
  // Other values lie as their hints say.
  for (const auto& [name, sharding] : options.given) {
    const std::optional<ValueId> value = graph.FindValue(name);
    const bool is_made = value.has_value() && graph.value(*value).source == ValueSource::kNode;
    if (is_made) best.shardings[name] = sharding;
  }
  return std::move(best.shardings);
}

}  // namespace weft
