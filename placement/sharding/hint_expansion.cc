// ExpandForHints: takes nodes apart whose own rule cannot read a parameter as the plan lays it.
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

}  // namespace

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
