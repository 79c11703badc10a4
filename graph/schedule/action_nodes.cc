#include "graph/schedule/action_nodes.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/schedule/action_kind.h"
#include "graph/schedule/action_list.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The actions run together all nodes of each micro graph in use.
absl::Status CheckCoverage(
    const Partition& partition, const std::set<int>& graphs,
    const std::map<std::tuple<ActionKind, int, int>, std::vector<NodeId>>& nodes,
    bool is_training) {
  for (const int graph : graphs) {
    std::set<NodeId> covered;
    for (const auto& [key, ids] : nodes) {
      const bool is_end =
          std::get<0>(key) == ActionKind::kBegin || std::get<0>(key) == ActionKind::kUpdate;
      if (!is_end && std::get<1>(key) == graph) covered.insert(ids.begin(), ids.end());
    }
    for (const NodeId id : partition.micro[graph].node_ids()) {
      const Node& node = partition.micro[graph].node(id);
      if (covered.contains(id) || (node.phase != Phase::kForward && !is_training)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "no action of rank ", partition.rank.value, " runs node '", node.name, "' of stage ",
          node.stage.value, "; the actions are ", ActionListToString(partition.actions)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<bool> AwaitedBackwardNodes(const Graph& micro) {
  std::vector<bool> awaited(micro.node_capacity());
  std::vector<NodeId> pending;
  const auto add = [&](NodeId id) {
    if (!id.valid() || awaited[id.value] || micro.node(id).phase != Phase::kBackward) return;
    awaited[id.value] = true;
    pending.push_back(id);
  };
  for (const NodeId id : micro.node_ids()) {
    if (IsCommunication(micro.node(id))) add(id);
  }
  while (!pending.empty()) {
    const NodeId id = pending.back();
    pending.pop_back();
    for (const ValueId input : micro.node(id).inputs) {
      if (input.valid()) add(micro.value(input).producer);
    }
  }
  return awaited;
}

absl::StatusOr<ActionNodes> ActionNodes::Create(const Partition& partition) {
  ActionNodes result;
  for (const MicroBatch& micro_batch : partition.micro_batches) {
    result.graph_of_.push_back(micro_batch.graph);
  }
  const bool splits_backward = SplitsBackward(partition.actions);
  const bool has_chunks = ChunksOf(partition.actions) > 1;
  std::map<Key, std::vector<NodeId>> of_graphs;
  std::set<int> graphs(result.graph_of_.begin(), result.graph_of_.end());
  for (const int g : graphs) {
    const Graph& graph = partition.micro[g];
    const std::vector<bool> awaited = AwaitedBackwardNodes(graph);
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
    for (const NodeId id : order) {
      const Node& node = graph.node(id);
      ActionKind kind = ActionKind::kForward;
      if (node.phase == Phase::kBackward) {
        kind = splits_backward && !awaited[id.value] ? ActionKind::kWeightGradient
                                                     : ActionKind::kBackward;
      } else if (node.phase != Phase::kForward) {
        continue;
      }
      const int chunk =
          has_chunks && node.stage.valid() ? node.stage.value / partition.mesh.pipeline : 0;
      of_graphs[{kind, g, chunk}].push_back(id);
    }
  }
  bool is_training = false;
  for (const Action& action : partition.actions) {
    is_training |= action.kind == ActionKind::kBackward;
    const int count = static_cast<int>(partition.micro_batches.size());
    if (IsMicro(action) && (action.micro_batch < 0 || action.micro_batch >= count)) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", partition.rank.value, " has ", count,
                                                     " micro-batches, but an action ",
                                                     ActionToString(action)));
    }
    const Key key = result.KeyOf(action);
    if (!IsMicro(action)) {
      const Graph& graph = action.kind == ActionKind::kBegin ? partition.begin : partition.end;
      WEFT_ASSIGN_OR_RETURN(result.nodes_[key], graph.TopologicalOrder());
    } else if (const auto nodes = of_graphs.find(key); nodes != of_graphs.end()) {
      result.nodes_.insert(*nodes);
    }
  }
  WEFT_RETURN_IF_ERROR(CheckCoverage(partition, graphs, result.nodes_, is_training));
  return result;
}

ActionNodes::Key ActionNodes::KeyOf(const Action& action) const {
  if (!IsMicro(action)) return {action.kind, 0, 0};
  const bool in_range =
      action.micro_batch >= 0 && action.micro_batch < static_cast<int>(graph_of_.size());
  return {action.kind, in_range ? graph_of_[action.micro_batch] : -1, action.chunk};
}

const std::vector<NodeId>& ActionNodes::Of(const Action& action) const {
  static const auto* const none = new std::vector<NodeId>();
  const auto it = nodes_.find(KeyOf(action));
  return it == nodes_.end() ? *none : it->second;
}

}  // namespace weft
