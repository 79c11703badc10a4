#include "placement/simulation/plan_prediction.h"

#include <algorithm>
#include <utility>

#include "placement/completion/plan_completion.h"
#include "placement/partition/partition_summary.h"
#include "placement/simulation/partition_model.h"
#include "placement/simulation/simulator.h"
#include "platform/status_macros.h"

namespace weft {

absl::Status PredictPlan(const std::vector<Partition>& partitions, const CostModel& costs,
                         Plan& plan) {
  WEFT_ASSIGN_OR_RETURN(const StepModel model, ModelOfPartitions(partitions, plan.workers, costs));
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
  if (whole > 0) prediction.bubble_fraction = idle / whole;
  for (const Partition& partition : partitions) {
    WEFT_ASSIGN_OR_RETURN(const RankSummary summary, Summarize(partition));
    prediction.bytes_per_step.push_back(summary.sent_bytes);
    prediction.memory_bytes.push_back(summary.variable_bytes + summary.arena_bytes);
  }
  plan.prediction = std::move(prediction);
  return absl::OkStatus();
}

}  // namespace weft
