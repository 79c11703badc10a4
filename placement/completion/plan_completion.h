// Makes complete plans: digests, workers of ranks, stages.
#ifndef WEFT_PLACEMENT_COMPLETION_PLAN_COMPLETION_H_
#define WEFT_PLACEMENT_COMPLETION_PLAN_COMPLETION_H_

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

// Fills in what `plan` leaves open, for this graph and cluster: digests (FailedPrecondition naming
// both when it has others), data parallelism over all workers, or those that the plan names, when
// no mesh was given (mesh all 1 and several workers), ranks' workers, stages (balanced by FLOPs
// over the forward nodes in topological order, cut where the fewest bytes cross), micro-batches
// (REQUIRES strict: as given), threads. There is no prediction in it yet
// (placement/simulation/plan_prediction.h). Errors when mesh and cluster do not fit, with both
// numbers.
absl::StatusOr<Plan> CompletePlan(const Graph& graph, const ClusterSpec& cluster, Plan plan,
                                  int64_t global_batch);

// The micro-batches that a plan is completed to whose mesh is complete: as many as it says, rounded
// up so that each replica has its share, and at least one for each stage of a pipeline where it
// says one. Of a strict plan, what it says. Not of whole_batch: one for each replica.
int CompleteMicroBatchCount(const Plan& plan);

// "2 threads per worker", "2 to 8 threads per worker".
std::string ThreadsText(const Plan& plan);

}  // namespace weft

#endif  // WEFT_PLACEMENT_COMPLETION_PLAN_COMPLETION_H_
