// What chaos tells of its runs.
#ifndef WEFT_TOOLS_CHAOS_CHAOS_REPORT_H_
#define WEFT_TOOLS_CHAOS_CHAOS_REPORT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/chaos/chaos_run.h"

namespace weft {

// A line for the run, one for each fault, and one for each complaint; columns are aligned. `again`
// is the command that repeats the run; it stands at the end of one that did not hold.
std::string ChaosRunText(const ChaosOutcome& outcome, const std::string& again);

// "seed", "held", "faults", "exits", "steps", "seconds", "sha256", "last_loss", "hung", "orphans",
// "complaints" and, where it did not hold, "again". A number that is not known is null.
nlohmann::ordered_json ChaosRunJson(const ChaosOutcome& outcome, const std::string& again);

// A line for each kind of fault over all runs: how often it was drawn and has struck, and the
// median and the largest time to the next step.
std::string ChaosSummaryText(const std::vector<ChaosOutcome>& outcomes);

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_CHAOS_REPORT_H_
