#include "executor/lowering/fuse_nodes.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "graph/schedule/action_list.h"
#include "graph/schedule/action_nodes.h"
#include "graph/schedule/end_order.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// By NodeId: 1 for backward nodes that other stages wait for, where these run in actions of their
// own.
std::vector<int> ColorsOfMicro(const Graph& micro, const Partition& partition) {
  if (!SplitsBackward(partition.actions)) return {};
  const std::vector<bool> awaited = AwaitedBackwardNodes(micro);
  return {awaited.begin(), awaited.end()};
}

// By NodeId: 1 for what comes after the guard.
absl::StatusOr<std::vector<int>> ColorsOfEnd(const Partition& partition) {
  std::vector<int> colors(partition.end.node_capacity());
  if (partition.guard.empty()) return colors;
  WEFT_ASSIGN_OR_RETURN(const EndOrder order, OrderOfEnd(partition));
  for (size_t i = order.before_guard; i < order.nodes.size(); ++i) colors[order.nodes[i].value] = 1;
  return colors;
}

}  // namespace

absl::StatusOr<FusedPartition> FuseNodes(const Partition& partition, const FusionRules& rules) {
  FusedPartition result{partition.Clone(), {}};
  Partition& fused = result.partition;
  const auto fuse = [&](Graph& graph, const std::vector<int>& colors) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const FusionCounts counts, FuseRegions(graph, rules, colors));
    result.counts.nodes += counts.nodes;
    result.counts.regions += counts.regions;
    return absl::OkStatus();
  };
  // The order of execution is that of ids afterwards.
  WEFT_RETURN_IF_ERROR(fused.begin.Compact());
  WEFT_RETURN_IF_ERROR(fuse(fused.begin, {}));
  for (Graph& micro : fused.micro) {
    WEFT_RETURN_IF_ERROR(micro.Compact());
    WEFT_RETURN_IF_ERROR(fuse(micro, ColorsOfMicro(micro, fused)));
  }
  WEFT_RETURN_IF_ERROR(fused.end.Compact());
  WEFT_ASSIGN_OR_RETURN(const std::vector<int> colors, ColorsOfEnd(fused));
  WEFT_RETURN_IF_ERROR(fuse(fused.end, colors));
  return result;
}

}  // namespace weft
