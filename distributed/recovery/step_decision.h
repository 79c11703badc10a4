// StepDecision: what the ranks that are left make of the step that was under way when one was lost.
#ifndef WEFT_DISTRIBUTED_RECOVERY_STEP_DECISION_H_
#define WEFT_DISTRIBUTED_RECOVERY_STEP_DECISION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/recovery/step_progress.h"

namespace weft {

struct StepDecision {
  int64_t steps = 0;        // of the newest run, that are done on all of them after this
  std::vector<int> finish;  // who must finish its step first (FinishStepRequest), as indices
};

// `ranks`: of those that are left, at least one; `runs`: calls of RunSteps that the coordinator has
// made of the job's workers. A rank that has not heard of the newest has done nothing of it.
// Where one has done a step, those at its barrier finish it; where none has, they do so only if all
// are there, for nobody needs to compute it again then; else all leave it out. DataLoss where the
// ranks cannot come to one step: one is torn, or has left out what another has done.
absl::StatusOr<StepDecision> DecideStep(const std::vector<StepProgress>& ranks, int64_t runs);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_RECOVERY_STEP_DECISION_H_
