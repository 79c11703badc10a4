#include "placement/search/given_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "placement/completion/plan_completion.h"
#include "placement/graph_views/graph_for_samples.h"
#include "placement/search/tensor_split.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using ShardingHints = std::map<std::string, AxisSharding>;

bool HintsSplit(const ShardingHints& hints) {
  return std::any_of(hints.begin(), hints.end(),
                     [](const auto& hint) { return hint.second.is_split(); });
}

// Shardings for the tensor-parallel group of the first replica's first stage, `given` among them.
absl::StatusOr<ShardingHints> ShardingsFor(const Graph& graph, const CostModel& cost,
                                           const Plan& complete, const ShardingHints& given,
                                           int64_t global_batch, NodeEvaluator& evaluator) {
  const int64_t micro_batches = std::max(1, complete.micro_batches);
  const int64_t samples = std::max<int64_t>(1, (global_batch + micro_batches - 1) / micro_batches);
  WEFT_ASSIGN_OR_RETURN(const Graph sized, GraphForSamples(graph, samples, evaluator));
  TensorSplitOptions options;
  for (int shard = 0; shard < complete.mesh.tensor; ++shard) {
    const RankId rank = complete.mesh.RankOf({.data = 0, .tensor = shard, .pipeline = 0});
    options.workers.push_back(complete.workers[rank.value]);
  }
  options.threads = complete.threads_per_worker;
  options.given = given;
  options.uncounted = &graph;
  options.saves_memory = true;  // who asks for a tensor axis wants the parameters shared
  WEFT_ASSIGN_OR_RETURN(ShardingHints chosen, ChooseTensorShardings(sized, cost, options));
  for (const auto& [name, sharding] : given) chosen.insert_or_assign(name, sharding);
  return chosen;
}

}  // namespace

bool LeavesTensorAxisOpen(const Plan& plan) {
  return plan.mesh.tensor > 1 && !HintsSplit(plan.tensor_shardings);
}

absl::StatusOr<Plan> CompleteGivenPlan(const Graph& graph, const ClusterSpec& cluster,
                                       const CostModel& cost, Plan plan, int64_t global_batch,
                                       NodeEvaluator& evaluator) {
  if (!LeavesTensorAxisOpen(plan)) {
    return CompletePlan(graph, cluster, std::move(plan), global_batch);
  }
  // Complete without splits says which workers share the axis, and how large a micro-batch is.
  WEFT_ASSIGN_OR_RETURN(const Plan complete, CompletePlan(graph, cluster, plan, global_batch));
  WEFT_ASSIGN_OR_RETURN(
      plan.tensor_shardings,
      ShardingsFor(graph, cost, complete, plan.tensor_shardings, global_batch, evaluator));
  if (!HintsSplit(plan.tensor_shardings)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tp=", plan.mesh.tensor,
        " splits nothing: no parameter of the model has an axis of at least ", plan.mesh.tensor,
        " elements that all operators which read it can take in parts, so every rank would do all "
        "the work; use dp or pp, or give shardings in a plan file (tensor_shardings)"));
  }
  return CompletePlan(graph, cluster, std::move(plan), global_batch);
}

}  // namespace weft
