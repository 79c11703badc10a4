// What `simulate` says: where the time of simulated steps goes.
#ifndef WEFT_TOOLS_REPORTS_SIMULATION_REPORT_H_
#define WEFT_TOOLS_REPORTS_SIMULATION_REPORT_H_

#include <string>

#include "graph/cluster_spec.h"
#include "graph/plan.h"
#include "nlohmann/json.hpp"
#include "placement/simulation/simulator.h"

namespace weft {

// Borrowed.
struct SimulatedPlan {
  const Plan& plan;
  const ClusterSpec& cluster;
  const StepModel& model;
  const Simulation& simulation;
};

// For people: steps, stages, a row per rank and per link; of many the slowest; and who stalled.
std::string SimulationText(const SimulatedPlan& simulated);
// All ranks and links.
nlohmann::ordered_json SimulationJson(const SimulatedPlan& simulated);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_SIMULATION_REPORT_H_
