// The time of a run per operator and per node.
#ifndef WEFT_TOOLS_REPORTS_RUN_PROFILE_H_
#define WEFT_TOOLS_REPORTS_RUN_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "executor/program/step_program.h"
#include "nlohmann/json.hpp"

namespace weft {

// The times of all nodes of a run.
struct RunProfile {
  int64_t runs = 0;
  int threads = 0;
  int64_t nanoseconds = 0;  // of all runs, on the clock
  // Of all runs. The time of a node with a body (If, Loop) holds that of the body's nodes.
  std::vector<NodeStatistics> nodes;
};

// `later` without what was in `earlier`, of the same runner.
std::vector<NodeStatistics> Difference(const std::vector<NodeStatistics>& later,
                                       const std::vector<NodeStatistics>& earlier);

// A table of all operators and one of the slowest nodes, slowest first; milliseconds are per run,
// and shares are of the clock's time.
std::string ProfileText(const RunProfile& profile);

// {"runs", "threads", "milliseconds_per_run", "operators": [{"operator", "nodes", "calls",
// "milliseconds_per_run"}], "nodes": [{"node", "operator", "calls", "milliseconds_per_run"}]}, all
// nodes, slowest first.
nlohmann::ordered_json ProfileJson(const RunProfile& profile);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_RUN_PROFILE_H_
