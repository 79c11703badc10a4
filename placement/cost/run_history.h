// The history: what runs were predicted to take and what they took, one JSON object per line. From
// it the cost model learns by how much it is off.
#ifndef WEFT_PLACEMENT_COST_RUN_HISTORY_H_
#define WEFT_PLACEMENT_COST_RUN_HISTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "placement/cost/cost_model.h"

namespace weft {

// Of one step: predicted, or the median of those that were run.
struct StepCosts {
  double step_seconds = 0;
  double compute_seconds = 0;         // in nodes, on the rank that needs longest
  double communication_seconds = 0;   // of that rank's step, besides: handling and waiting
  std::vector<int64_t> bytes_sent;    // per rank
  std::vector<int64_t> memory_bytes;  // per rank
  friend bool operator==(const StepCosts&, const StepCosts&) = default;
};

// One run of one plan.
struct RunHistoryEntry {
  std::string time;   // when it ended, "2026-11-22T05:00:00Z"
  std::string model;  // the file's name, for people
  uint64_t model_digest = 0;
  uint64_t cluster_digest = 0;
  std::string plan;  // PlanSignature
  int64_t steps = 0;
  StepCosts predicted;
  // CostModel::StepFactor that is in the predicted step.
  double factor = 1;
  StepCosts measured;
  double input_seconds = 0;  // of a measured step: waiting for data
  friend bool operator==(const RunHistoryEntry&, const RunHistoryEntry&) = default;
};

// With the line's end.
std::string RunHistoryLine(const RunHistoryEntry& entry);

// InvalidArgument "history.jsonl:3: ..." for a line that is none; empty lines are left out, keys
// that are not known too.
absl::StatusOr<std::vector<RunHistoryEntry>> ParseRunHistory(const std::string& text,
                                                             const std::string& file_name);

// What runs of this model on this cluster say. A plan's factor is the median of measured over
// predicted step (without the factor that was applied then) over its newest 9 runs; a plan that was
// not run has the median of those that were. Runs of fewer than 10 steps do not count.
CostCorrections CorrectionsOf(const std::vector<RunHistoryEntry>& history, uint64_t cluster_digest,
                              uint64_t model_digest);

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_RUN_HISTORY_H_
