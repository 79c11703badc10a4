#include "placement/search/testing/node_choices.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "placement/sharding/sharding_candidates.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Seconds. A hint that saves less is not made.
constexpr double kPreference = 1e-9;

int IndexOf(const AxisSharding& sharding, std::vector<AxisSharding>& layouts) {
  const auto found = std::find(layouts.begin(), layouts.end(), sharding);
  if (found != layouts.end()) return static_cast<int>(found - layouts.begin());
  layouts.push_back(sharding);
  return static_cast<int>(layouts.size()) - 1;
}

void AddOnce(const AxisSharding& sharding, std::vector<AxisSharding>& layouts) {
  IndexOf(sharding, layouts);
}

// How the node's inputs lie when its open operands lie as `ways` says.
std::vector<AxisSharding> CurrentOf(const Node& node, const std::vector<OperandWays>& operands,
                                    const std::vector<int>& ways) {
  std::vector<AxisSharding> current(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    for (size_t slot = 0; slot < operands.size(); ++slot) {
      if (node.inputs[i] != operands[slot].value) continue;
      current[i] = operands[slot].layouts[ways[slot]];
    }
  }
  return current;
}

double CountWays(const std::vector<OperandWays>& operands) {
  double count = 1;
  for (const OperandWays& operand : operands) {
    count *= static_cast<double>(operand.layouts.size());
  }
  return count;
}

}  // namespace

struct NodeChoiceMaker::Building {
  NodeChoices choices;
  std::map<std::vector<int>, size_t> row_of;  // by layouts of shared slots

  void Add(NodeChoices::Row row) {
    const auto [known, is_new] =
        row_of.try_emplace(choices.SharedLayouts(row), choices.rows.size());
    if (is_new) {
      choices.rows.push_back(std::move(row));
    } else if (row.cost() < choices.rows[known->second].cost()) {
      choices.rows[known->second] = std::move(row);
    }
  }
};

absl::StatusOr<std::vector<AxisSharding>> NodeChoiceMaker::WaysToRead(const Node& node,
                                                                      ValueId variable) const {
  WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(costs_.graph(), node));
  std::vector<AxisSharding> ways = {AxisSharding::Replicated()};
  const auto add = [&](const std::vector<AxisSharding>& current) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const auto candidates,
                          ShardingCandidates(view, current, costs_.shards()));
    for (const NodeSharding& candidate : candidates) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const bool is_it = node.inputs[i] == variable;
        if (is_it && costs_.CanHold(variable, candidate.inputs[i])) {
          AddOnce(candidate.inputs[i], ways);
        }
      }
    }
    return absl::OkStatus();
  };
  std::vector<AxisSharding> current(node.inputs.size());
  WEFT_RETURN_IF_ERROR(add(current));
  const int rank = ShapeOf(costs_.graph(), variable).rank();
  for (int axis = 0; axis < rank; ++axis) {
    for (const int64_t blocks : costs_.blocks()) {
      const AxisSharding split = AxisSharding::Split(axis, blocks);
      if (!costs_.CanHold(variable, split)) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == variable) current[i] = split;
      }
      WEFT_RETURN_IF_ERROR(add(current));
    }
  }
  return ways;
}

std::optional<AxisSharding> NodeChoiceMaker::GivenFor(ValueId made) const {
  const auto& given = costs_.options().given;
  const auto found = given.find(costs_.graph().value(made).name);
  return found == given.end() ? std::nullopt : std::optional(found->second);
}

bool NodeChoiceMaker::MayHint(ValueId value, const AxisSharding& sharding) const {
  if (sharding.is_replicated()) return true;
  if (!costs_.CanHold(value, sharding)) return false;
  const Graph* const uncounted = costs_.options().uncounted;
  if (uncounted == nullptr) return true;
  const std::optional<ValueId> same = uncounted->FindValue(costs_.graph().value(value).name);
  if (!same.has_value()) return false;
  const SymbolicShape& shape = uncounted->value(*same).type.shape;
  return shape.has_rank() && sharding.axis < shape.rank() && shape.dim(sharding.axis).is_known();
}

void NodeChoiceMaker::AppendResult(ValueId result, std::string& key) const {
  key.push_back('=');
  if (!result.valid()) return;
  if (costs_.LastUse(result) >= 0) key.push_back('+');
  if (costs_.IsReadBackward(result)) key.push_back('-');
  if (const auto given = GivenFor(result)) AppendSharding(*given, key);
  for (int axis = 0; axis < ShapeOf(costs_.graph(), result).rank(); ++axis) {
    key.push_back(MayHint(result, AxisSharding::Split(axis)) ? '1' : '0');
  }
}

// What each split of the node reads, as far as its operands may lie so; and everything whole.
absl::StatusOr<std::vector<std::vector<int>>> NodeChoiceMaker::WaysOfSplits(
    const GraphNodeView& view, const std::vector<OperandWays>& operands) const {
  const Node& node = view.node();
  std::set<std::vector<int>> found;
  const auto add = [&](const std::vector<int>& probe) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(
        const auto candidates,
        ShardingCandidates(view, CurrentOf(node, operands, probe), costs_.shards()));
    for (const NodeSharding& candidate : candidates) {
      std::vector<int> ways(operands.size(), 0);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        for (size_t slot = 0; slot < operands.size(); ++slot) {
          if (node.inputs[i] != operands[slot].value) continue;
          const auto& layouts = operands[slot].layouts;
          const auto way = std::find(layouts.begin(), layouts.end(), candidate.inputs[i]);
          if (way != layouts.end()) ways[slot] = static_cast<int>(way - layouts.begin());
        }
      }
      found.insert(std::move(ways));
    }
    return absl::OkStatus();
  };
  std::vector<int> probe(operands.size(), 0);
  WEFT_RETURN_IF_ERROR(add(probe));
  for (size_t slot = 0; slot < operands.size(); ++slot) {
    for (size_t way = 1; way < operands[slot].layouts.size(); ++way) {
      probe[slot] = static_cast<int>(way);
      WEFT_RETURN_IF_ERROR(add(probe));
    }
    probe[slot] = 0;
  }
  return std::vector<std::vector<int>>(found.begin(), found.end());
}

absl::StatusOr<std::vector<std::vector<int>>> NodeChoiceMaker::OperandCombinations(
    const GraphNodeView& view, const std::vector<OperandWays>& operands) const {
  if (CountWays(operands) > static_cast<double>(max_operand_ways_)) {
    return WaysOfSplits(view, operands);
  }
  std::vector<std::vector<int>> combinations;
  std::vector<int> ways(operands.size(), 0);
  for (bool more = true; more;) {
    combinations.push_back(ways);
    more = false;
    for (size_t i = ways.size(); i > 0 && !more; --i) {
      more = ++ways[i - 1] < static_cast<int>(operands[i - 1].layouts.size());
      if (!more) ways[i - 1] = 0;
    }
  }
  return combinations;
}

// First what is given, or nothing; then the results of each candidate, sums made whole; then all
// whole.
std::vector<NodeChoiceMaker::Hints> NodeChoiceMaker::HintsOf(
    const Node& node, const std::vector<NodeSharding>& candidates) const {
  Hints first(node.outputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].valid()) first[i] = GivenFor(node.outputs[i]);
  }
  std::vector<Hints> all = {first};
  const auto add = [&](const std::vector<AxisSharding>& outputs) {
    Hints hints = first;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (!node.outputs[i].valid() || hints[i].has_value()) continue;
      hints[i] = outputs[i].is_partial() ? AxisSharding::Replicated() : outputs[i];
      if (!MayHint(node.outputs[i], *hints[i])) return;
    }
    if (std::find(all.begin(), all.end(), hints) == all.end()) all.push_back(std::move(hints));
  };
  for (const NodeSharding& candidate : candidates) add(candidate.outputs);
  add(std::vector<AxisSharding>(node.outputs.size()));
  return all;
}

absl::Status NodeChoiceMaker::AddRows(const GraphNodeView& view,
                                      const std::vector<OperandWays>& operands,
                                      const std::vector<int>& ways, Building& building) const {
  const Node& node = view.node();
  const std::vector<AxisSharding> current = CurrentOf(node, operands, ways);
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeSharding> candidates,
                        ShardingCandidates(view, current, costs_.shards()));
  double keeping = 0;
  for (size_t slot = 0; slot < operands.size(); ++slot) {
    if (operands[slot].is_shared) continue;
    keeping += costs_.KeepingSeconds(operands[slot].value, operands[slot].layouts[ways[slot]]);
  }
  const std::vector<Hints> all_hints = HintsOf(node, candidates);
  for (const Hints& hints : all_hints) {
    const NodeSharding& chosen = costs_.Decide(node, candidates, current, hints);
    NodeChoices::Row row;
    row.layouts = ways;
    row.is_hinted = &hints != &all_hints.front();
    row.seconds = keeping + costs_.NodeSeconds(view, chosen, current);
    if (row.is_hinted) row.preference += kPreference;
    size_t slot = operands.size();
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (!node.outputs[i].valid()) continue;
      const AxisSharding lies = hints[i].value_or(chosen.outputs[i]);
      row.seconds += costs_.HintSeconds(node.outputs[i], chosen.outputs[i], lies);
      // What the backward pass reads and is not summed here would be summed there once more.
      const bool is_read_again = lies.is_partial() && costs_.IsReadBackward(node.outputs[i]);
      if (is_read_again) row.preference += 2 * kPreference;
      row.layouts.push_back(IndexOf(lies, building.choices.layouts[slot++]));
    }
    building.Add(std::move(row));
  }
  return absl::OkStatus();
}

absl::StatusOr<NodeChoices> NodeChoiceMaker::Make(const Node& node,
                                                  const std::vector<OperandWays>& operands) const {
  WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(costs_.graph(), node));
  Building building;
  for (const OperandWays& operand : operands) {
    building.choices.layouts.push_back(operand.layouts);
    building.choices.is_shared.push_back(operand.is_shared);
  }
  for (const ValueId output : node.outputs) {
    if (!output.valid()) continue;
    const std::optional<AxisSharding> given = GivenFor(output);
    building.choices.layouts.push_back({given.value_or(AxisSharding::Replicated())});
    building.choices.is_shared.push_back(costs_.LastUse(output) >= 0);
  }
  building.choices.leaves_ways_out = CountWays(operands) > static_cast<double>(max_operand_ways_);
  WEFT_ASSIGN_OR_RETURN(const auto combinations, OperandCombinations(view, operands));
  for (const std::vector<int>& ways : combinations) {
    WEFT_RETURN_IF_ERROR(AddRows(view, operands, ways, building));
  }
  return std::move(building.choices);
}

}  // namespace weft
