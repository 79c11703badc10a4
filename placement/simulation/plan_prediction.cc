#include "placement/simulation/plan_prediction.h"

#include <algorithm>
#include <utility>

#include "placement/completion/plan_completion.h"
#include "placement/partition/partition_summary.h"
#include "placement/partition/traffic_prediction.h"
#include "placement/simulation/partition_model.h"
#include "placement/simulation/simulator.h"
#include "platform/status_macros.h"

namespace weft {

absl::Status PredictPlan(const std::vector<Partition>& partitions, const CostModel& costs,
                         Plan& plan, const RankMemoryFn& rank_memory, const HostPaths& host) {
  WEFT_ASSIGN_OR_RETURN(
      const StepModel model,
      ModelOfPartitions(partitions, plan.workers, costs.WithHostOps(plan.host_ops),
                        {.per_node = false, .host = host}));
  SimulationOptions options;
  options.steps = kPredictedSteps;
  WEFT_ASSIGN_OR_RETURN(const Simulation simulation, SimulateStep(model, options));
  const double factor = costs.StepFactor(plan);
  Prediction prediction;
  prediction.step_seconds = simulation.step_seconds * factor;
  const auto longest =
      std::max_element(simulation.ranks.begin(), simulation.ranks.end(),
                       [](const RankTime& a, const RankTime& b) { return a.compute < b.compute; });
  prediction.compute_seconds = longest->compute * factor;
  prediction.communication_seconds = longest->communication * factor;
  double idle = 0;
  double whole = 0;
  for (const RankTime& rank : simulation.ranks) {
    idle += rank.bubble;
    whole += rank.compute + rank.communication + rank.bubble;
  }
  prediction.calibrated = costs.is_calibrated();
  if (whole > 0) prediction.bubble_fraction = idle / whole;
  for (const Partition& partition : partitions) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<StreamPrediction> streams, PredictTraffic(partition));
    int64_t sent = 0;
    for (const StreamPrediction& stream : streams) sent += stream.bytes;
    prediction.bytes_per_step.push_back(sent);
    const auto rank = static_cast<size_t>(partition.rank.value);
    const int worker = rank < plan.workers.size() ? plan.workers[rank] : -1;
    WEFT_ASSIGN_OR_RETURN(const int64_t memory, MemoryOfRank(partition, worker, rank_memory));
    prediction.memory_bytes.push_back(memory);
  }
  plan.prediction = std::move(prediction);
  return absl::OkStatus();
}

}  // namespace weft
