// Law 15 of docs/architecture.md: a plan carries its prediction, which comes from the simulator.
#ifndef WEFT_PLACEMENT_SIMULATION_PLAN_PREDICTION_H_
#define WEFT_PLACEMENT_SIMULATION_PLAN_PREDICTION_H_

#include <vector>

#include "absl/status/status.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "placement/cost/cost_model.h"
#include "placement/partition/partition_memory.h"
#include "placement/simulation/host_paths.h"

namespace weft {

// Steps that tell how long one takes among others: the first fills the pipeline across steps, more
// change nothing.
inline constexpr int kPredictedSteps = 3;

// Fills the prediction of a complete plan from a few simulated steps of its partitions: seconds of
// a step in the steady state, times CostModel::StepFactor; of these what the rank that computes
// longest spends computing, and waiting for or handling messages and collectives under way; the
// share of a step that ranks are idle, in the mean; payload bytes that each rank sends, exactly;
// bytes that each rank needs besides its process (MemoryOfRank with `rank_memory`; null: an
// estimate). `host`: what goes through hosts besides what the cost model says.
absl::Status PredictPlan(const std::vector<Partition>& partitions, const CostModel& costs,
                         Plan& plan, const RankMemoryFn& rank_memory = nullptr,
                         const HostPaths& host = {});

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_PLAN_PREDICTION_H_
