#include "placement/search/plan_simulation.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "placement/graph_views/micro_batches.h"
#include "placement/partition/partition_check.h"
#include "placement/partition/partition_memory.h"
#include "placement/partition/partitioner.h"
#include "placement/simulation/partition_model.h"
#include "placement/simulation/plan_prediction.h"
#include "placement/simulation/simulator.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Ranks, and how many each stands for.
struct Representatives {
  std::vector<RankId> ranks;
  std::vector<int> counts;
};

Representatives AllRanks(const Mesh& mesh) {
  Representatives all;
  for (int rank = 0; rank < mesh.size(); ++rank) all.ranks.push_back(RankId(rank));
  all.counts.assign(all.ranks.size(), 1);
  return all;
}

int64_t LimitOf(const PlanSimulationOptions& options, int worker) {
  const auto index = static_cast<size_t>(worker);
  return index < options.memory_limits.size() ? options.memory_limits[index] : 0;
}

// Equal for replicas whose ranks do the same in the same time, but for rows of variables that do
// not divide evenly: of these the first ones have one more.
std::vector<double> KindOfReplica(const Plan& plan, const BatchSplit& split, const CostModel& cost,
                                  const PlanSimulationOptions& options, int replica) {
  std::vector<double> kind;
  for (const MicroBatch& one : split.OfReplica(plan, replica)) {
    kind.push_back(static_cast<double>(one.samples));
  }
  std::vector<int> workers;
  for (int shard = 0; shard < plan.mesh.tensor; ++shard) {
    const RankId rank = plan.mesh.RankOf({.data = replica, .tensor = shard, .pipeline = 0});
    const int worker = plan.workers[rank.value];
    kind.push_back(cost.profile().device_of[worker]);
    kind.push_back(plan.ThreadsOf(rank));
    kind.push_back(static_cast<double>(LimitOf(options, worker)));
    workers.push_back(worker);
  }
  for (const int from : workers) {
    for (const int to : workers) {
      if (from == to) continue;
      const LinkCost link = cost.Link(from, to);
      kind.insert(kind.end(), {link.latency_seconds, link.bytes_per_second, link.send_seconds,
                               link.receive_seconds, link.contention,
                               cost.host(from) == cost.host(to) ? 1.0 : 0.0});
    }
  }
  return kind;
}

// With a pipeline replicas share links; in ordered sums they have different parts.
absl::StatusOr<Representatives> RanksToSimulate(const Plan& plan, const CostModel& cost,
                                                const PlanSimulationOptions& options) {
  const Mesh& mesh = plan.mesh;
  if (mesh.data == 1 || mesh.pipeline > 1 || plan.reduction != Reduction::kUnordered) {
    return AllRanks(mesh);
  }
  WEFT_ASSIGN_OR_RETURN(const BatchSplit split,
                        SplitBatch(options.global_batch, plan.micro_batches));
  std::map<std::vector<double>, std::pair<int, int>> kinds;  // the first replica, and how many
  for (int replica = 0; replica < mesh.data; ++replica) {
    const auto [kind, is_new] =
        kinds.try_emplace(KindOfReplica(plan, split, cost, options, replica), replica, 0);
    ++kind->second.second;
  }
  std::map<RankId, int> counts;
  for (const auto& [kind, replicas] : kinds) {
    for (int shard = 0; shard < mesh.tensor; ++shard) {
      counts[mesh.RankOf({.data = replicas.first, .tensor = shard, .pipeline = 0})] =
          replicas.second;
    }
  }
  Representatives few;
  for (const auto& [rank, count] : counts) {
    few.ranks.push_back(rank);
    few.counts.push_back(count);
  }
  return few;
}

// One whose arena is as large: ranks of different replicas and shards are mostly alike.
std::vector<RankNeed>::iterator FindLike(std::vector<RankNeed>::iterator first,
                                         std::vector<RankNeed>::iterator last,
                                         const RankNeed& need) {
  return std::find_if(first, last, [&](const RankNeed& one) {
    return one.limit - one.bytes == need.limit - need.bytes &&
           (one.limit == 0) == (need.limit == 0) && one.lifetimes == need.lifetimes;
  });
}

absl::StatusOr<std::vector<RankNeed>> NeedsOf(const std::vector<Partition>& partitions,
                                              const Plan& plan,
                                              const PlanSimulationOptions& options) {
  std::vector<RankNeed> needs;
  for (const Partition& partition : partitions) {
    RankNeed need;
    need.limit = LimitOf(options, plan.workers[partition.rank.value]);
    need.bytes = VariableBytes(partition) + options.process_bytes;
    WEFT_ASSIGN_OR_RETURN(need.lifetimes, LifetimesOfStep(partition));
    const auto like = FindLike(needs.begin(), needs.end(), need);
    if (like != needs.end()) {
      need.arena_bytes = like->arena_bytes;
    } else {
      WEFT_ASSIGN_OR_RETURN(need.arena_bytes, MinArenaBytes(need.lifetimes));
    }
    needs.push_back(std::move(need));
  }
  return needs;
}

}  // namespace

absl::StatusOr<PlanSimulation> SimulatePlan(const Graph& graph, const Plan& plan,
                                            const CostModel& cost,
                                            const PlanSimulationOptions& options,
                                            NodeEvaluator& evaluator) {
  WEFT_ASSIGN_OR_RETURN(const Representatives representatives,
                        RanksToSimulate(plan, cost, options));
  WEFT_ASSIGN_OR_RETURN(std::vector<Partition> partitions,
                        PartitionRanks(graph, plan, {/*training=*/true, options.global_batch},
                                       representatives.ranks, evaluator));
  if (plan.mesh.pipeline > 1) WEFT_RETURN_IF_ERROR(CheckPipelines(partitions));
  PlanSimulation result;
  WEFT_ASSIGN_OR_RETURN(result.ranks, NeedsOf(partitions, plan, options));
  WEFT_ASSIGN_OR_RETURN(const StepModel model, ModelOfPartitions(partitions, plan.workers, cost));
  SimulationOptions simulation_options;
  simulation_options.steps = kPredictedSteps;
  WEFT_ASSIGN_OR_RETURN(const Simulation simulation, SimulateStep(model, simulation_options));
  const double factor = cost.StepFactor(plan);
  result.step_seconds = simulation.step_seconds * factor;
  for (size_t i = 0; i < simulation.ranks.size(); ++i) {
    const RankTime& time = simulation.ranks[i];
    const double share = factor * representatives.counts[i] / plan.mesh.size();
    result.compute_seconds += time.compute * share;
    result.communication_seconds += time.communication * share;
    result.bubble_seconds += time.bubble * share;
  }
  result.partitions = std::make_unique<const std::vector<Partition>>(std::move(partitions));
  return result;
}

bool IsNearLimit(const RankNeed& need) {
  constexpr int64_t kMaxFactor = 4;
  return need.limit > 0 && need.total() > need.limit / kMaxFactor;
}

absl::Status LayOutArenas(std::vector<RankNeed>& ranks) {
  for (auto rank = ranks.begin(); rank != ranks.end(); ++rank) {
    const auto like = FindLike(ranks.begin(), rank, *rank);
    if (like != rank) {
      rank->arena_bytes = like->arena_bytes;
      continue;
    }
    const int64_t room =
        rank->limit > 0 ? rank->limit - rank->bytes : std::numeric_limits<int64_t>::max();
    WEFT_ASSIGN_OR_RETURN(const MemoryPlan arena, PlanMemory(rank->lifetimes, room));
    rank->arena_bytes = arena.arena_bytes;
  }
  return absl::OkStatus();
}

}  // namespace weft
