// Scripts for simulations as YAML: what gets slower or stops, and when.
#ifndef WEFT_PLACEMENT_SIMULATION_SCRIPT_FILE_H_
#define WEFT_PLACEMENT_SIMULATION_SCRIPT_FILE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "placement/simulation/simulator.h"

namespace weft {

// What a script file says (docs/placement.md).
struct SimulationScript {
  std::vector<ScriptedChange> changes;               // in the order of the file
  std::optional<double> stall_timeout_seconds = {};  // where the file says one
};

// For a model of this cluster:
//
//   stall_timeout: 60s                             # optional
//   changes:
//     - {step: 3, worker: "worker:1", slower: 2.5}  # from its step 3 on, 2.5 times its usual time
//     - {at: 10ms, rank: 0, slower: 1}              # from that time on as usual
//     - {step: 2, link: {from: alpha, to: beta}, slower: 10}
//     - {step: 5, rank: 3, stops: true}
//
// Each change says either `step` or `at`, and one of `worker`, `rank` (of the plan) and `link`: all
// links from one host to another, or within one. InvalidArgument "file:line:column: ..." for what
// is unknown, missing or out of range.
absl::StatusOr<SimulationScript> ParseScriptFile(const std::string& text,
                                                 const std::string& file_name,
                                                 const ClusterSpec& cluster,
                                                 const StepModel& model);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_SCRIPT_FILE_H_
