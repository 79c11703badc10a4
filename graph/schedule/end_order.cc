#include "graph/schedule/end_order.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/graph.h"
#include "graph/node_class.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The nodes that a value depends on.
std::set<NodeId> NodesBefore(const Graph& graph, ValueId value) {
  std::set<NodeId> needed;
  std::vector<ValueId> pending = {value};
  while (!pending.empty()) {
    const ValueDef& next = graph.value(pending.back());
    pending.pop_back();
    if (next.source != ValueSource::kNode || !needed.insert(next.producer).second) continue;
    for (const ValueId input : graph.node(next.producer).inputs) {
      if (input.valid()) pending.push_back(input);
    }
  }
  return needed;
}

// The new values of variables.
std::set<ValueId> NewValues(const Graph& graph) {
  std::set<ValueId> values;
  for (const Variable& variable : graph.variables()) {
    if (variable.update.valid() && graph.value(variable.update).source == ValueSource::kNode) {
      values.insert(variable.update);
    }
  }
  return values;
}

bool Communicates(const Node& node) { return KindOf(node) != CommunicationKind::kNone; }

// The communication of these nodes, which are in order, that rests on no new value, and that which
// does.
struct Messages {
  std::vector<NodeId> early;
  std::vector<NodeId> late;
};
Messages MessagesOf(const Graph& graph, const std::vector<NodeId>& order) {
  std::set<ValueId> late = NewValues(graph);
  Messages messages;
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    const auto is_late = [&late](ValueId value) { return late.contains(value); };
    const bool rests = std::any_of(node.inputs.begin(), node.inputs.end(), is_late);
    if (rests) {
      for (const ValueId output : node.outputs) {
        if (output.valid()) late.insert(output);
      }
    }
    if (Communicates(node)) (rests ? messages.late : messages.early).push_back(id);
  }
  return messages;
}

}  // namespace

absl::StatusOr<bool> UpdatesNeedPeers(const Partition& partition) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, partition.end.TopologicalOrder());
  return !MessagesOf(partition.end, order).late.empty();
}

absl::StatusOr<EndOrder> OrderOfEnd(const Partition& partition) {
  const Graph& graph = partition.end;
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  if (partition.guard.empty()) return EndOrder{order, 0};
  const std::optional<ValueId> guard = graph.FindValue(partition.guard);
  if (!guard) {
    return absl::InternalError(
        absl::StrCat("the end graph has no value '", partition.guard, "' to guard"));
  }
  std::set<NodeId> needed = NodesBefore(graph, *guard);
  if (partition.commits) {
    for (const NodeId message : MessagesOf(graph, order).early) {
      needed.insert(message);
      for (const ValueId input : graph.node(message).inputs) {
        if (input.valid()) needed.merge(NodesBefore(graph, input));
      }
    }
  }
  std::set<ValueId> late = NewValues(graph);
  const auto is_late = [&late](ValueId value) { return late.contains(value); };
  EndOrder result;
  std::vector<NodeId> after;
  size_t missing = needed.size();
  for (const NodeId id : order) {
    if (missing == 0) {
      after.push_back(id);
      continue;
    }
    const Node& node = graph.node(id);
    if (!needed.contains(id) && (std::any_of(node.outputs.begin(), node.outputs.end(), is_late) ||
                                 std::any_of(node.inputs.begin(), node.inputs.end(), is_late))) {
      std::copy_if(node.outputs.begin(), node.outputs.end(), std::inserter(late, late.end()),
                   [](ValueId output) { return output.valid(); });
      after.push_back(id);
      continue;
    }
    result.nodes.push_back(id);
    if (needed.contains(id)) --missing;
  }
  result.before_guard = result.nodes.size();
  result.nodes.insert(result.nodes.end(), after.begin(), after.end());
  return result;
}

absl::StatusOr<std::vector<NodeId>> CollectivesBesideMicroBatches(const Partition& partition) {
  const Graph& graph = partition.end;
  std::set<std::string> sums;
  for (const Accumulation& accumulation : partition.accumulations) {
    for (const Accumulation::Block& block : accumulation.blocks) sums.insert(block.end_input);
  }
  const auto uses = graph.BuildUses();
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  std::vector<NodeId> beside;
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    if (KindOf(node) != CommunicationKind::kAllReduce) continue;
    const bool sums_only = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId in) {
      return sums.contains(graph.value(in).name) && uses[in.value].size() == 1;
    });
    if (sums_only) beside.push_back(id);
  }
  return beside;
}

}  // namespace weft
