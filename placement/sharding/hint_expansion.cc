// ExpandForHints and ExpandForSplits: take nodes apart whose own rule cannot read an operand in a
// way in which it is, or may be, split.
#include <algorithm>

#include "graph/expansion.h"
#include "graph/op_schema.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/sharding/sharding_candidates.h"
#include "placement/sharding/sharding_propagation.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"

namespace weft {
namespace {

// True if some input is a variable that is hinted to be split in a way that no candidate reads as
// it is.
absl::StatusOr<bool> NeedsExpansion(const Graph& graph, const Node& node,
                                    const PropagationOptions& options) {
  std::vector<AxisSharding> current(node.inputs.size());
  std::vector<int> hinted;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].valid()) continue;
    const Variable* variable = graph.VariableOf(node.inputs[i]);
    const auto* hint = variable == nullptr ? nullptr : FindEntry(options.hints, variable->name);
    if (hint == nullptr || !hint->second.is_split()) continue;
    current[i] = hint->second;
    hinted.push_back(static_cast<int>(i));
  }
  if (hinted.empty()) return false;
  WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(graph, node));
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeSharding> candidates,
                        ShardingCandidates(view, current, options.shards));
  return std::any_of(hinted.begin(), hinted.end(), [&](int input) {
    return std::none_of(candidates.begin(), candidates.end(), [&](const NodeSharding& candidate) {
      return candidate.inputs[input] == current[input];
    });
  });
}

// True if no candidate splits some axis of a matrix that the node reads: with a bias, a Gemm cannot
// be split along the sum.
absl::StatusOr<bool> LacksSplits(const Graph& graph, const Node& node, int shards) {
  WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(graph, node));
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<NodeSharding> candidates,
      ShardingCandidates(view, std::vector<AxisSharding>(node.inputs.size()), shards));
  for (int i = 0; i < view.num_inputs(); ++i) {
    const Shape& shape = view.InputShape(i);
    for (int axis = 0; shape.rank() > 1 && axis < shape.rank(); ++axis) {
      if (shape.dim(axis) < shards) continue;
      const AxisSharding split = AxisSharding::Split(axis);
      const bool offered =
          std::any_of(candidates.begin(), candidates.end(),
                      [&](const NodeSharding& candidate) { return candidate.inputs[i] == split; });
      if (!offered) return true;
    }
  }
  return false;
}

}  // namespace

absl::Status ExpandForSplits(Graph& graph, int shards) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.phase != Phase::kForward || node.schema == nullptr || !node.schema->expand()) continue;
    WEFT_ASSIGN_OR_RETURN(const bool lacks, LacksSplits(graph, node, shards));
    // What cannot be taken apart stays as it was.
    const absl::Status expanded = lacks ? ExpandNode(graph, id) : absl::OkStatus();
    if (!expanded.ok() && !absl::IsUnimplemented(expanded)) return expanded;
  }
  return absl::OkStatus();
}

absl::Status ExpandForHints(Graph& graph, const PropagationOptions& options) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.phase != Phase::kForward || node.schema == nullptr || !node.schema->expand()) continue;
    WEFT_ASSIGN_OR_RETURN(const bool needed, NeedsExpansion(graph, node, options));
    if (needed) WEFT_RETURN_IF_ERROR(ExpandNode(graph, id));
  }
  return absl::OkStatus();
}

}  // namespace weft
