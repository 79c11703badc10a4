#include "training/job/fused_nodes.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/lowering/fuse_nodes.h"
#include "ops/fusion/fused_node.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

bool IsOnGpu(const Partition& partition, const ClusterSpec& cluster, const Plan& plan) {
  const auto rank = static_cast<size_t>(partition.rank.value);
  if (rank >= plan.workers.size()) return false;
  const auto worker = static_cast<size_t>(plan.workers[rank]);
  return worker < cluster.workers.size() && cluster.workers[worker].device == DeviceKind::kCuda;
}

void AddKernels(const Graph& graph, std::vector<FusedKernel>& kernels) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.schema != &FusedSchema() && node.schema != &JoinedProductSchema()) continue;
    FusedKernel kernel{node.name, {}};
    const Graph& body = FusedBodyOf(node);
    for (const NodeId part : body.node_ids()) {
      kernel.parts.push_back(absl::StrCat(body.node(part).name, " (", body.node(part).op, ")"));
    }
    kernels.push_back(std::move(kernel));
  }
}

std::string CountsText(int nodes, size_t kernels) {
  if (kernels == 0) return "no node runs with others in one kernel";
  return absl::StrCat(nodes, " nodes run in ", kernels, kernels == 1 ? " kernel" : " kernels");
}

std::string RanksText(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

std::string LineOf(const std::vector<RankFusion>& fusion, const std::vector<Partition>& partitions,
                   const FusionRules* rules) {
  const bool is_wanted =
      std::any_of(partitions.begin(), partitions.end(),
                  [](const Partition& partition) { return partition.fuses_nodes; });
  if (!is_wanted) return "";
  if (std::all_of(partitions.begin(), partitions.end(),
                  [](const Partition& partition) { return partition.strict; })) {
    return "fused: nothing, since the job is strict";
  }
  if (rules == nullptr) {
    return "fused: how many nodes, this program was not built to know (--config=cuda)";
  }
  if (fusion.empty()) return "fused: nothing, since no worker computes on a GPU";
  std::map<std::pair<int, size_t>, std::vector<int>> ranks_by_counts;
  for (const RankFusion& rank : fusion) {
    ranks_by_counts[{rank.nodes, rank.kernels.size()}].push_back(rank.rank.value);
  }
  if (ranks_by_counts.size() == 1) {
    const auto& [counts, ranks] = *ranks_by_counts.begin();
    return absl::StrCat("fused: ", CountsText(counts.first, counts.second),
                        ranks.size() == 1 ? absl::StrCat(" on the GPU of rank ", ranks.front())
                                          : absl::StrCat(" on each of ", ranks.size(), " GPUs"));
  }
  std::vector<std::string> texts;
  for (const auto& [counts, ranks] : ranks_by_counts) {
    texts.push_back(
        absl::StrCat(CountsText(counts.first, counts.second), " on ", RanksText(ranks)));
  }
  return absl::StrCat("fused: ", absl::StrJoin(texts, "; "));
}

}  // namespace

absl::StatusOr<JobFusion> FusionOf(const std::vector<Partition>& partitions,
                                   const ClusterSpec& cluster, const Plan& plan,
                                   const FusionRules* rules) {
  JobFusion fusion;
  for (const Partition& partition : partitions) {
    const bool fuses = rules != nullptr && partition.fuses_nodes && !partition.strict;
    if (!fuses || !IsOnGpu(partition, cluster, plan)) continue;
    const TakesProduct all = [](const Graph&) { return true; };
    WEFT_ASSIGN_OR_RETURN(const FusedPartition fused, FuseNodes(partition, *rules, all));
    RankFusion& rank = fusion.ranks.emplace_back();
    rank.rank = partition.rank;
    rank.nodes = fused.counts.nodes;
    AddKernels(fused.partition.begin, rank.kernels);
    for (const Graph& micro : fused.partition.micro) AddKernels(micro, rank.kernels);
    AddKernels(fused.partition.end, rank.kernels);
  }
  fusion.text = LineOf(fusion.ranks, partitions, rules);
  return fusion;
}

std::string FusedKernelsText(const std::vector<RankFusion>& ranks) {
  std::vector<std::pair<std::string, std::vector<int>>> ranks_by_lines;  // in order of ranks
  for (const RankFusion& rank : ranks) {
    if (rank.kernels.empty()) continue;
    std::string lines;
    for (const FusedKernel& kernel : rank.kernels) {
      absl::StrAppend(&lines, "  ", absl::StrJoin(kernel.parts, ", "), "\n");
    }
    const auto known = std::find_if(ranks_by_lines.begin(), ranks_by_lines.end(),
                                    [&](const auto& entry) { return entry.first == lines; });
    if (known != ranks_by_lines.end()) {
      known->second.push_back(rank.rank.value);
    } else {
      ranks_by_lines.push_back({std::move(lines), {rank.rank.value}});
    }
  }
  std::string text;
  for (const auto& [lines, of] : ranks_by_lines) {
    absl::StrAppend(&text, "fused kernels of ", RanksText(of), "\n", lines);
  }
  return text;
}

}  // namespace weft
