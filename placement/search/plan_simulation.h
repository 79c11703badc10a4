// SimulatePlan: what a plan's own partitions say of its step, its time and the memory of its ranks.
#ifndef WEFT_PLACEMENT_SEARCH_PLAN_SIMULATION_H_
#define WEFT_PLACEMENT_SEARCH_PLAN_SIMULATION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/inference.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "graph/schedule/memory_plan.h"
#include "placement/cost/cost_model.h"

namespace weft {

struct PlanSimulationOptions {
  int64_t global_batch = 1;
  // As in SearchOptions.
  std::vector<int64_t> memory_limits;
  int64_t process_bytes = 0;
};

// What a rank takes, and what it may take. Bytes.
struct RankNeed {
  int64_t limit = 0;  // 0 = any amount
  int64_t bytes = 0;  // of variables and of the process
  std::vector<BufferLifetime> lifetimes;
  int64_t arena_bytes = 0;  // as much at least, until LayOutArenas
  int64_t total() const { return bytes + arena_bytes; }
  bool fits() const { return limit == 0 || total() <= limit; }
};

// Whether what an estimate does not know (workspaces, packed weights, sums over micro-batches) may
// decide if the rank fits. It is taken for granted that no rank needs four times its estimate; one
// that does is refused before its job starts (training/job/job_search.h).
bool IsNearLimit(const RankNeed& need);

struct PlanSimulation {
  // Of a step: all of it, and the mean rank's shares.
  double step_seconds = 0;
  double compute_seconds = 0;
  double communication_seconds = 0;
  double bubble_seconds = 0;
  std::vector<RankNeed> ranks;  // one of those that are alike
  // Of these ranks. Never null.
  std::unique_ptr<const std::vector<Partition>> partitions;
};

// Partitions the step of `plan`, which is complete, and simulates it (ModelOfPartitions,
// SimulateStep, kPredictedSteps). Without a pipeline, replicas that do the same on like workers
// wait for nothing but each other: one of them is partitioned and simulated. The partitions' graphs
// are not verified. Errors are those of PartitionStep.
absl::StatusOr<PlanSimulation> SimulatePlan(const Graph& graph, const Plan& plan,
                                            const CostModel& cost,
                                            const PlanSimulationOptions& options,
                                            NodeEvaluator& evaluator);

// Lays out the ranks' arenas, as small as it takes for each to fit (PlanMemory).
absl::Status LayOutArenas(std::vector<RankNeed>& ranks);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_PLAN_SIMULATION_H_
