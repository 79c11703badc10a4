#include "executor/lowering/fuse_nodes.h"

#include <cstddef>
#include <optional>
#include <set>
#include <string>
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

// While it lives, the values of these names are outputs of the graph, which regions then keep: the
// graphs of a step give values to each other by name.
class KeptValues {
 public:
  KeptValues(Graph& graph, const std::set<std::string>& names)
      : graph_(graph), outputs_(graph.outputs()) {
    for (const std::string& name : names) {
      if (const std::optional<ValueId> id = graph.FindValue(name)) graph.AddOutput(*id);
    }
  }
  KeptValues(const KeptValues&) = delete;
  KeptValues& operator=(const KeptValues&) = delete;
  ~KeptValues() { graph_.SetOutputs(outputs_); }

 private:
  Graph& graph_;
  const std::vector<ValueId> outputs_;
};

// What the begin graph gives: inputs of the others.
std::set<std::string> InputNames(const Partition& partition) {
  std::set<std::string> names;
  for (const ValueId input : partition.end.inputs()) names.insert(partition.end.value(input).name);
  for (const Graph& micro : partition.micro) {
    for (const ValueId input : micro.inputs()) names.insert(micro.value(input).name);
  }
  return names;
}

std::set<std::string> SummedNames(const Partition& partition) {
  std::set<std::string> names;
  for (const Accumulation& sum : partition.accumulations) names.insert(sum.micro_output);
  return names;
}

std::set<std::string> ReportedNames(const Partition& partition) {
  std::set<std::string> names(partition.reports.begin(), partition.reports.end());
  if (!partition.guard.empty()) names.insert(partition.guard);
  return names;
}

}  // namespace

absl::StatusOr<FusedPartition> FuseNodes(const Partition& partition, const FusionRules& rules,
                                         const TakesProduct& takes) {
  FusedPartition result{partition.Clone(), {}};
  Partition& fused = result.partition;
  const auto fuse = [&](Graph& graph, const std::set<std::string>& names,
                        const std::vector<int>& colors) -> absl::Status {
    const KeptValues kept(graph, names);
    if (takes != nullptr) {
      WEFT_ASSIGN_OR_RETURN(const FusionCounts joined, JoinProducts(graph, takes, colors));
      result.counts.nodes += joined.nodes;
      result.counts.regions += joined.regions;
    }
    WEFT_ASSIGN_OR_RETURN(const FusionCounts counts, FuseRegions(graph, rules, colors));
    result.counts.nodes += counts.nodes;
    result.counts.regions += counts.regions;
    return absl::OkStatus();
  };
  // The order of execution is that of ids afterwards.
  WEFT_RETURN_IF_ERROR(fused.begin.Compact());
  WEFT_RETURN_IF_ERROR(fuse(fused.begin, InputNames(fused), {}));
  for (Graph& micro : fused.micro) {
    WEFT_RETURN_IF_ERROR(micro.Compact());
    WEFT_RETURN_IF_ERROR(fuse(micro, SummedNames(fused), ColorsOfMicro(micro, fused)));
  }
  WEFT_RETURN_IF_ERROR(fused.end.Compact());
  WEFT_ASSIGN_OR_RETURN(const std::vector<int> colors, ColorsOfEnd(fused));
  WEFT_RETURN_IF_ERROR(fuse(fused.end, ReportedNames(fused), colors));
  return result;
}

absl::StatusOr<JoinedPartition> JoinAttention(const Partition& partition,
                                              const TakesAttention& takes) {
  JoinedPartition result{partition.Clone(), 0};
  Partition& joined = result.partition;
  const std::set<std::string> kept = SummedNames(joined);
  for (Graph& micro : joined.micro) {
    WEFT_RETURN_IF_ERROR(micro.Compact());
    WEFT_ASSIGN_OR_RETURN(const int gradients,
                          JoinAttentionGradients(micro, takes, kept, ColorsOfMicro(micro, joined)));
    result.gradients += gradients;
  }
  return result;
}

}  // namespace weft
