// Makes complete plans: digests, workers of ranks, stages.
#ifndef WEFT_PLACEMENT_PLANNER_H_
#define WEFT_PLACEMENT_PLANNER_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "graph/plan.h"

namespace weft {

// Hash of a graph's structure (not of weights): what a plan is made for.
uint64_t GraphDigest(const Graph& graph);

// Fills in what `plan` leaves open, for this graph and cluster: digests (FailedPrecondition naming
// both when it has others), data parallelism over all workers, or those that the plan names, when
// no mesh was given (mesh all 1 and several workers), ranks' workers, stages (balanced by FLOPs
// over the forward nodes in topological order, cut where the fewest bytes cross), micro-batches
// (REQUIRES strict: as given), threads. There is no prediction in it yet
// (placement/simulation/plan_prediction.h). Errors when mesh and cluster do not fit, with both
// numbers.
absl::StatusOr<Plan> CompletePlan(const Graph& graph, const ClusterSpec& cluster, Plan plan,
                                  int64_t global_batch);

// "2 threads per worker", "2 to 8 threads per worker".
std::string ThreadsText(const Plan& plan);

// Sums over a partition for `plan` output: what runs where, bytes per channel and step, memory.
struct RankSummary {
  RankId rank;
  int nodes = 0;
  int64_t parameters = 0;       // elements of trainable shards
  double flops = 0;             // per step
  double recomputed_flops = 0;  // of these: what runs a second time
  int64_t variable_bytes = 0;
  int64_t arena_bytes = 0;  // upper bound of live bytes over the actions
  int64_t sent_bytes = 0;   // payload per step, exactly what the executor sends
};
absl::StatusOr<RankSummary> Summarize(const Partition& partition);

// An op whose nodes run whole on every rank of the tensor axis, since it has no sharding rule or a
// body (If, Loop, Scan); what a rank spends on it in a step.
struct ReplicatedOp {
  std::string op;               // "Range", "ai.weft::Name"
  std::set<std::string> nodes;  // names
  double flops = 0;
  double bytes = 0;  // read and written
};
// The most FLOPs first; empty where nothing is tensor-parallel.
std::vector<ReplicatedOp> OpsWithoutRule(const Partition& partition);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PLANNER_H_
