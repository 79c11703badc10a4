#include "distributed/recovery/step_decision.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace weft {

absl::StatusOr<StepDecision> DecideStep(const std::vector<StepProgress>& ranks, int64_t runs) {
  if (ranks.empty()) return absl::InvalidArgumentError("no rank is left to decide on a step");
  std::vector<StepProgress> at;
  StepDecision decision;
  for (size_t i = 0; i < ranks.size(); ++i) {
    StepProgress rank = ranks[i];
    // It is where the last run ended.
    if (rank.runs == runs - 1 && rank.state == StepState::kDone) rank = {.runs = runs};
    if (rank.runs != runs) {
      return absl::DataLossError(absl::StrCat("a worker has run ", rank.runs,
                                              " stretches of steps, the coordinator ", runs));
    }
    if (rank.state == StepState::kTorn) {
      return absl::DataLossError(absl::StrCat(
          "a worker has lost the job in the updates of step ", rank.steps,
          " of a stretch, which need other workers: its state is neither that before nor after"));
    }
    decision.steps = std::max(decision.steps, rank.steps);
    at.push_back(rank);
  }
  const auto is_ready = [](const StepProgress& rank) {
    return rank.state == StepState::kReady && rank.finishes_alone;
  };
  const bool all_wait = std::all_of(at.begin(), at.end(), [&](const StepProgress& rank) {
    return rank.steps == decision.steps && is_ready(rank);
  });
  if (all_wait) ++decision.steps;
  for (size_t i = 0; i < at.size(); ++i) {
    if (at[i].steps == decision.steps) continue;
    if (at[i].steps + 1 != decision.steps || !is_ready(at[i])) {
      return absl::DataLossError(absl::StrCat("a worker has done ", at[i].steps,
                                              " steps of a stretch and cannot follow one that has "
                                              "done ",
                                              decision.steps));
    }
    decision.finish.push_back(static_cast<int>(i));
  }
  return decision;
}

}  // namespace weft
