// The table of a sweep: what each trial had, how far it came, and how it ended.
#ifndef WEFT_TOOLS_SWEEP_SWEEP_TABLE_H_
#define WEFT_TOOLS_SWEEP_SWEEP_TABLE_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/sweep/trial_flags.h"
#include "tools/sweep/trial_run.h"

namespace weft {

// Borrows all; outcomes are by trial.
struct SweepResult {
  const SweepTrials& sweep;
  const SweepScore& score;
  const std::vector<TrialOutcome>& outcomes;
  int best = -1;                        // its index; -1: none was finished
  std::vector<std::string> files = {};  // of the best, that were written: "model out.onnx"
};

// One line of names, one for each trial, one for the best, one for each file; columns are aligned.
// A reason keeps its first 200 characters.
std::string SweepTableText(const SweepResult& result);
// "score", "trials", "best" (counted from 1, null: none) and "files"; numbers that are not known
// are null.
nlohmann::ordered_json SweepTableJson(const SweepResult& result);

}  // namespace weft

#endif  // WEFT_TOOLS_SWEEP_SWEEP_TABLE_H_
