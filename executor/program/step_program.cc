#include "executor/program/step_program.h"

#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<StepResult> StepProgram::Run(const StepOptions& options) {
  StepResult result;
  WEFT_RETURN_IF_ERROR(RunInto(options, result));
  return result;
}

}  // namespace weft
