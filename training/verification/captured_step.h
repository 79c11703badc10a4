// Runs one step of a job on workers in this process with every value reported. Internal to
// training/.
#ifndef WEFT_TRAINING_VERIFICATION_CAPTURED_STEP_H_
#define WEFT_TRAINING_VERIFICATION_CAPTURED_STEP_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "training/job/job.h"
#include "training/verification/value_capture.h"

namespace weft {

// All values of one step, by rank.
struct CapturedStep {
  struct Rank {
    std::vector<ValueCapture> captures;
    std::map<std::string, Tensor> values;  // by ValueCapture::report
  };
  std::vector<Rank> ranks;
  std::map<std::string, Tensor> variables;  // after the step, whole
};

// Captures values of the first program of `job` and runs step 0.
absl::StatusOr<CapturedStep> RunCapturedStep(FileSystem& files, PreparedJob& job);

}  // namespace weft

#endif  // WEFT_TRAINING_VERIFICATION_CAPTURED_STEP_H_
