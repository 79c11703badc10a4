// StepProgress: how far a rank has come when its job was ended.
#ifndef WEFT_DISTRIBUTED_RECOVERY_STEP_PROGRESS_H_
#define WEFT_DISTRIBUTED_RECOVERY_STEP_PROGRESS_H_

#include <cstdint>

#include "executor/program/step_program.h"

namespace weft {

struct StepProgress {
  int64_t runs = 0;                    // calls of RunSteps since it joined, the newest counted
  int64_t steps = 0;                   // of the newest, that are done
  StepState state = StepState::kDone;  // of the step after those, or kDone: it has not begun
  bool finishes_alone = false;         // the step under way needs no other rank for its updates
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_RECOVERY_STEP_PROGRESS_H_
