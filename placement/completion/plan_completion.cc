#include "placement/completion/plan_completion.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/node_class.h"
#include "graph/schedule/action_list.h"
#include "placement/completion/balanced_cut.h"
#include "placement/completion/pinned_stages.h"
#include "placement/graph_views/control_flow_bodies.h"
#include "placement/graph_views/graph_digest.h"
#include "placement/pipeline/recomputation.h"
#include "placement/pipeline/stage_assignment.h"
#include "placement/rules/recomputed_segments.h"
#include "placement/sharding/data_sharding.h"
#include "placement/sharding/derived_shardings.h"
#include "placement/sharding/sharding_propagation.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// A training graph; an evaluation graph is part of a job that its training graph stands for.
bool HasBackward(const Graph& graph) {
  const std::vector<NodeId> ids = graph.node_ids();
  return std::any_of(ids.begin(), ids.end(),
                     [&](NodeId id) { return graph.node(id).phase == Phase::kBackward; });
}

absl::Status CheckDigest(const char* what, uint64_t of_plan, uint64_t actual) {
  if (of_plan == 0 || of_plan == actual) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("the plan was made for another %s: its digest is %016x, that of this %s is "
                      "%016x; make a new plan, or remove the digest to use it all the same",
                      what, of_plan, what, actual));
}

absl::Status CompleteDigests(const Graph& graph, const ClusterSpec& cluster, Plan& plan) {
  const uint64_t model = GraphDigest(graph);
  if (HasBackward(graph)) {
    WEFT_RETURN_IF_ERROR(CheckDigest("model", plan.model_digest, model));
    plan.model_digest = model;
  } else if (plan.model_digest == 0) {
    plan.model_digest = model;
  }
  WEFT_RETURN_IF_ERROR(CheckDigest("cluster", plan.cluster_digest, cluster.Digest()));
  plan.cluster_digest = cluster.Digest();
  return absl::OkStatus();
}

void CompleteHosts(const ClusterSpec& cluster, Plan& plan) {
  std::map<std::string, int> numbers;
  for (const WorkerSpec& worker : cluster.workers) {
    numbers.try_emplace(worker.host, static_cast<int>(numbers.size()));
  }
  plan.hosts.clear();
  if (numbers.size() == 1) return;
  for (const int worker : plan.workers) {
    plan.hosts.push_back(numbers.at(cluster.workers[worker].host));
  }
}

// Some of the cluster's workers, each once: those that plan.workers names, or all.
absl::Status CheckWorkers(int cluster_size, const Plan& plan) {
  std::set<int> distinct;
  for (const int worker : plan.workers) {
    if (worker < 0 || worker >= cluster_size) {
      return absl::InvalidArgumentError(absl::StrCat("the plan uses worker ", worker,
                                                     ", but the cluster has workers 0 to ",
                                                     cluster_size - 1));
    }
    if (!distinct.insert(worker).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the plan uses worker ", worker, " for two ranks"));
    }
  }
  return absl::OkStatus();
}

absl::Status CompleteMesh(const ClusterSpec& cluster, Plan& plan) {
  const int all = static_cast<int>(cluster.workers.size());
  if (all == 0) return absl::InvalidArgumentError("the cluster has no workers");
  const int workers = plan.workers.empty() ? all : static_cast<int>(plan.workers.size());
  if (plan.mesh.size() == 1) plan.mesh.data = workers;
  if (plan.mesh.size() != workers) {
    return absl::InvalidArgumentError(
        plan.workers.empty()
            ? absl::StrCat("the plan's mesh ", plan.mesh.ToString(), " needs ", plan.mesh.size(),
                           " workers, but the cluster has ", workers,
                           "; a plan file may name those to use: workers: [0, 1]")
            : absl::StrCat("the plan's mesh ", plan.mesh.ToString(), " needs ", plan.mesh.size(),
                           " workers, but the plan names ", workers));
  }
  if (plan.workers.empty()) {
    plan.workers.resize(workers);
    std::iota(plan.workers.begin(), plan.workers.end(), 0);
  }
  WEFT_RETURN_IF_ERROR(CheckWorkers(all, plan));
  CompleteHosts(cluster, plan);
  return absl::OkStatus();
}

// The fewest micro-batches of which each replica gets exactly its share.
int MicroBatchesOfRound(const Plan& plan) {
  if (plan.shares.empty()) return plan.mesh.data;
  int divisor = 0;
  for (const int share : plan.shares) divisor = std::gcd(divisor, share);
  return std::accumulate(plan.shares.begin(), plan.shares.end(), 0) / divisor;
}

// One for each replica, so that shares say nothing.
absl::Status CompleteWholeBatch(Plan& plan) {
  const int replicas = plan.mesh.data;
  const bool fits = plan.micro_batches == 1 || plan.micro_batches == replicas;
  if (fits && (!plan.strict || replicas == 1)) {
    plan.micro_batches = replicas;
    plan.shares.clear();
    return absl::OkStatus();
  }
  const bool sums = plan.strict && replicas > 1;
  return absl::InvalidArgumentError(absl::StrCat(
      sums ? absl::StrCat("a strict plan gives the bits of one replica, and sums over ", replicas,
                          " replicas have others; take one replica")
           : absl::StrCat("the plan computes with the whole batch (whole_batch), so that each of "
                          "its ",
                          replicas, " replicas runs one micro-batch, but it has ",
                          plan.micro_batches, " micro-batches; say --micro-batches ", replicas),
      ", or accept what each micro-batch makes by itself: --batch-norm micro where "
      "BatchNormalization mixes samples, --allow-batch-cut whatever does"));
}

absl::Status CompleteMicroBatches(Plan& plan) {
  const Mesh& mesh = plan.mesh;
  if (plan.whole_batch) {
    if (plan.strict) plan.reduction = Reduction::kOrderedTree;
    return CompleteWholeBatch(plan);
  }
  if (plan.strict) {
    plan.reduction = Reduction::kOrderedTree;
    if (plan.micro_batches >= mesh.data) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "a strict job of ", plan.micro_batches, " micro-batches cannot keep ", mesh.data,
        " data-parallel replicas busy; say --micro-batches ", mesh.data, " or more"));
  }
  plan.micro_batches = CompleteMicroBatchCount(plan);
  return absl::OkStatus();
}

// What the cluster says of a worker; else what the plan does.
absl::Status CompleteThreads(const ClusterSpec& cluster, Plan& plan) {
  const size_t given = plan.rank_threads.size();
  if (given > 0 && given != static_cast<size_t>(plan.mesh.size())) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has threads for ", given, " ranks of ",
                                                   plan.mesh.size(), " (", plan.mesh.ToString(),
                                                   ")"));
  }
  std::vector<int> threads;
  for (int rank = 0; rank < plan.mesh.size() && !plan.strict; ++rank) {
    const int said = cluster.workers[plan.workers[rank]].threads;
    threads.push_back(said > 0 ? said : plan.ThreadsOf(RankId(rank)));
  }
  plan.rank_threads.clear();
  if (plan.strict) plan.threads_per_worker = 1;
  if (threads.empty()) return absl::OkStatus();
  const auto [min_threads, max_threads] = std::minmax_element(threads.begin(), threads.end());
  plan.threads_per_worker = *min_threads;
  if (*min_threads != *max_threads) plan.rank_threads = std::move(threads);
  return absl::OkStatus();
}

// A pin and a stage for the same node must agree.
absl::Status AddPinned(const std::map<std::string, int>& pinned, Plan& plan) {
  for (const auto& [name, stage] : pinned) {
    const auto given = plan.stages.find(name);
    if (given != plan.stages.end() && given->second != stage) {
      return absl::InvalidArgumentError(absl::StrCat("the plan puts '", name, "' on stage ",
                                                     given->second, ", but it is pinned to stage ",
                                                     stage));
    }
    plan.stages[name] = stage;
  }
  return absl::OkStatus();
}

// Every forward node's stage, by name.
absl::Status CompleteStages(const Graph& graph, const ClusterSpec& cluster, int64_t samples,
                            Plan& plan) {
  using Stages = std::map<std::string, int>;
  WEFT_ASSIGN_OR_RETURN(const Stages pinned, PinnedStages(graph, cluster, plan));
  if (plan.stages.empty() && plan.num_stages() > 1) {
    WEFT_ASSIGN_OR_RETURN(plan.stages, BalancedStages(graph, plan.num_stages(), samples, pinned));
  }
  WEFT_RETURN_IF_ERROR(AddPinned(pinned, plan));
  Graph staged = graph.Clone();
  WEFT_RETURN_IF_ERROR(AssignStages(staged, plan).status());
  plan.stages.clear();
  if (plan.num_stages() == 1) return absl::OkStatus();
  for (const NodeId id : staged.node_ids()) {
    const Node& node = staged.node(id);
    if (IsForward(node)) plan.stages[node.name] = node.stage.value;
  }
  return absl::OkStatus();
}

// So many segments of equal memory per stage.
absl::Status CutSegments(const Graph& staged, int64_t samples, int count, Plan& plan) {
  plan.recompute.clear();
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    using Segments = std::map<std::string, int>;
    WEFT_ASSIGN_OR_RETURN(const Segments segments,
                          BalancedSegments(staged, StageId(stage), count, samples));
    int last = 0;
    for (const auto& [node, segment] : segments) last = std::max(last, segment);
    const bool is_fresh_stage =
        stage == plan.num_stages() - 1 && LastSegmentIsFresh(plan.num_stages(), plan.schedule);
    for (const auto& [node, segment] : segments) {
      if (is_fresh_stage && segment == last) continue;
      plan.recompute[node] = absl::StrCat("stage", stage, ".", segment);
    }
  }
  return absl::OkStatus();
}

// The segment of every node that has one, by name.
absl::Status CompleteRecomputation(const Graph& graph, int64_t samples, Plan& plan) {
  const int segments = std::exchange(plan.recompute_segments, 0);
  if (!HasBackward(graph)) plan.recompute.clear();
  if (!HasBackward(graph) || (segments == 0 && plan.recompute.empty())) return absl::OkStatus();
  if (segments > 0) {
    Graph staged = graph.Clone();
    WEFT_RETURN_IF_ERROR(AssignStages(staged, plan).status());
    return CutSegments(staged, samples, segments, plan);
  }
  WEFT_ASSIGN_OR_RETURN(RecomputedSegments by_name, FindRecomputedSegments(graph, plan));
  std::erase_if(by_name, [](const auto& entry) { return entry.second.empty(); });
  plan.recompute = std::move(by_name);
  return absl::OkStatus();
}

// Patterns become the names of variables; those that follow are added.
absl::Status CompleteShardings(const Graph& graph, int64_t samples, Plan& plan) {
  if (plan.mesh.tensor == 1) return absl::OkStatus();
  if (HasBackward(graph)) {
    WEFT_RETURN_IF_ERROR(CheckShardingHints(graph, plan.tensor_shardings));
  }
  plan.tensor_shardings = ResolveShardings(graph, plan.tensor_shardings);
  if (!HasBackward(graph) || plan.tensor_shardings.empty()) return absl::OkStatus();
  return DeriveShardings(graph, plan.mesh.tensor, samples, plan.tensor_shardings);
}

// Which parameters stay whole, for the training graph and for the evaluations of its job.
void CompleteZero(const Graph& graph, Plan& plan) {
  if (!HasBackward(graph)) return;
  plan.zero_replicated = FindDataShardings(graph, plan, plan.tensor_shardings).replicated;
}

}  // namespace

int CompleteMicroBatchCount(const Plan& plan) {
  if (plan.strict) return plan.micro_batches;
  const int round = MicroBatchesOfRound(plan);
  // A pipeline with one micro-batch never overlaps.
  const int min_micro_batches =
      plan.micro_batches == 1 ? round * plan.mesh.pipeline : plan.micro_batches;
  return (std::max(min_micro_batches, 1) + round - 1) / round * round;
}

std::string ThreadsText(const Plan& plan) {
  int max_threads = plan.threads_per_worker;
  for (const int threads : plan.rank_threads) max_threads = std::max(max_threads, threads);
  std::string text = absl::StrCat(plan.threads_per_worker);
  if (max_threads > plan.threads_per_worker) absl::StrAppend(&text, " to ", max_threads);
  return absl::StrCat(text, " threads per worker");
}

absl::StatusOr<Plan> CompletePlan(const Graph& graph, const ClusterSpec& cluster, Plan plan,
                                  int64_t global_batch) {
  WEFT_RETURN_IF_ERROR(CheckSchedule(plan.schedule, plan.chunks));
  WEFT_RETURN_IF_ERROR(CheckBodies(graph, plan));
  WEFT_RETURN_IF_ERROR(CompleteDigests(graph, cluster, plan));
  WEFT_RETURN_IF_ERROR(CompleteMesh(cluster, plan));
  WEFT_RETURN_IF_ERROR(CompleteMicroBatches(plan));
  WEFT_RETURN_IF_ERROR(CompleteThreads(cluster, plan));
  const int64_t samples = std::max<int64_t>(1, global_batch / plan.micro_batches);
  WEFT_RETURN_IF_ERROR(CompleteStages(graph, cluster, samples, plan));
  WEFT_RETURN_IF_ERROR(CompleteRecomputation(graph, samples, plan));
  WEFT_RETURN_IF_ERROR(CompleteShardings(graph, samples, plan));
  CompleteZero(graph, plan);
  plan.prediction = {};  // of what was open until now
  return plan;
}

}  // namespace weft
