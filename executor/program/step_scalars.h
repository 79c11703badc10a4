// StepScalars: the numbers that a step is given, such as the learning rate, and its own.
// Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_STEP_SCALARS_H_
#define WEFT_EXECUTOR_PROGRAM_STEP_SCALARS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "executor/lowering/lowered_step.h"
#include "tensor/device.h"

namespace weft {

// Copies them to a device. Borrows the scalars, each of which has its memory there.
class StepScalars {
 public:
  explicit StepScalars(const std::vector<StepScalar>& scalars) : scalars_(scalars) {}
  // The step's number is one of them: memory of the device (ResourceExhausted), int64_t, which
  // stays where it is. Called once, before all below.
  absl::Status AddStep(Device& device);
  // Null without AddStep.
  const int64_t* step_on_device() const {
    return step_ == nullptr ? nullptr : static_cast<const int64_t*>(step_->data());
  }
  // Of host memory, where the host cannot reach the device's.
  int64_t staging_bytes(const Device& device) const;
  absl::Status Prepare(Device& device);
  // Puts the numbers of a step into the stream; the one before has drained it. InvalidArgument for
  // a scalar without a value, and for one that is no number.
  absl::Status Write(int64_t step, const std::map<std::string, double>& values, Device& device,
                     Stream& stream);

 private:
  const std::vector<StepScalar>& scalars_;
  std::shared_ptr<Buffer> step_;     // of the device
  std::shared_ptr<Buffer> staging_;  // kAlignment bytes for each, the step last
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_STEP_SCALARS_H_
