#include "placement/partition/partitioner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/schedule/action_list.h"
#include "graph/schedule/end_order.h"
#include "placement/graph_views/control_flow_bodies.h"
#include "placement/partition/partition_check.h"
#include "placement/partition/rank_partition.h"
#include "placement/pipeline/step_layout.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status CheckPlan(const Plan& plan) {
  const Mesh& mesh = plan.mesh;
  if (mesh.data < 1 || mesh.tensor < 1 || mesh.pipeline < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the plan's mesh is ", mesh.ToString(),
                                                   "; each axis needs at least one rank"));
  }
  if (!plan.shares.empty() && static_cast<int>(plan.shares.size()) != mesh.data) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has ", plan.shares.size(),
                                                   " shares for ", mesh.data,
                                                   " data-parallel replicas; give one for each"));
  }
  if (std::any_of(plan.shares.begin(), plan.shares.end(), [](int share) { return share < 1; })) {
    return absl::InvalidArgumentError("a share of the plan is below 1");
  }
  WEFT_RETURN_IF_ERROR(CheckSchedule(plan.schedule, plan.chunks));
  if (plan.strict && plan.reduction != Reduction::kOrderedTree) {
    return absl::InvalidArgumentError(
        "a strict plan must combine gradients in the ordered tree; write 'reduction: "
        "ordered_tree'");
  }
  if (plan.recompute_segments > 0) {
    return absl::InvalidArgumentError(
        "the plan does not say yet which nodes its recomputed segments have; complete it first");
  }
  if (plan.zero < 0 || plan.zero > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan's zero is ", plan.zero, "; expected 0, 1, 2 or 3"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Partition>> PartitionRanks(const Graph& graph, const Plan& plan,
                                                      const StepShape& shape,
                                                      std::span<const RankId> ranks,
                                                      NodeEvaluator& evaluator) {
  WEFT_RETURN_IF_ERROR(CheckPlan(plan));
  WEFT_RETURN_IF_ERROR(CheckBodies(graph, plan));
  WEFT_ASSIGN_OR_RETURN(const StepLayout layout, LayOutStep(graph, plan, shape, evaluator));
  std::vector<Partition> partitions;
  for (const RankId rank : ranks) {
    WEFT_ASSIGN_OR_RETURN(Partition partition, BuildRankPartition(layout, rank));
    partitions.push_back(std::move(partition));
  }
  return partitions;
}

absl::StatusOr<std::vector<Partition>> PartitionStep(const Graph& graph, const Plan& plan,
                                                     const StepShape& shape,
                                                     NodeEvaluator& evaluator) {
  std::vector<RankId> ranks;
  for (int rank = 0; rank < plan.mesh.size(); ++rank) ranks.push_back(RankId(rank));
  WEFT_ASSIGN_OR_RETURN(std::vector<Partition> partitions,
                        PartitionRanks(graph, plan, shape, ranks, evaluator));
  // With ranks that have what no other has, no step can be ended without one of them.
  bool commits = plan.mesh.data > 1 && plan.zero == 0;
  for (const Partition& partition : partitions) {
    WEFT_ASSIGN_OR_RETURN(const bool need_peers, UpdatesNeedPeers(partition));
    commits = commits && !need_peers;
  }
  for (Partition& partition : partitions) partition.commits = partition.commits && commits;
  WEFT_RETURN_IF_ERROR(CheckPartitions(partitions));
  return partitions;
}

absl::StatusOr<StepShardings> ShardingsOfStep(const Graph& graph, const Plan& plan,
                                              const StepShape& shape, NodeEvaluator& evaluator) {
  WEFT_ASSIGN_OR_RETURN(const StepLayout layout, LayOutStep(graph, plan, shape, evaluator));
  StepShardings shardings;
  for (const SizedGraph& sized : layout.sizes) {
    std::map<std::string, AxisSharding>& by_name = shardings[sized.samples];
    for (const ValueId id : sized.graph.value_ids()) {
      by_name[sized.graph.value(id).name] = sized.shardings.values[id.value];
    }
  }
  shardings[0] = shardings[layout.step().samples];
  return shardings;
}

}  // namespace weft
