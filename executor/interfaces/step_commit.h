// StepCommit: the ranks of a job agree that a step may change variables.
#ifndef WEFT_EXECUTOR_INTERFACES_STEP_COMMIT_H_
#define WEFT_EXECUTOR_INTERFACES_STEP_COMMIT_H_

#include <cstdint>

#include "absl/status/status.h"

namespace weft {

// A step asks once, when it has all that its updates need from other ranks and has changed no
// variable yet. One thread at a time. Implemented by distributed/recovery.
class StepCommit {
 public:
  virtual ~StepCommit() = default;
  // Waits until every rank has come here in this step. OK: all have. An error: this rank does not
  // know whether all have; some may have gone on (StepState::kReady).
  virtual absl::Status Agree(int64_t step) = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_INTERFACES_STEP_COMMIT_H_
