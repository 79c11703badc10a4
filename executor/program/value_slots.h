// ValueSlots: the values of a running step outside the arena, and the instructions
// that work on them. Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_VALUE_SLOTS_H_
#define WEFT_EXECUTOR_PROGRAM_VALUE_SLOTS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/lowering/executor_environment.h"
#include "executor/program/instruction.h"
#include "tensor/value.h"

namespace weft {

// One per program, used by its compute thread. Values are on the host: what a device's buffer holds
// is copied where the host cannot read it, and borrowed else, for as long as the instruction runs.
class ValueSlots {
 public:
  // Borrows what the environment points to.
  explicit ValueSlots(const ExecutorEnvironment& environment)
      : device_(*environment.device), input_(environment.input) {}

  // When a step has ended, and its stream is drained.
  void Reset(const std::vector<Value>& initial);
  absl::Status Run(const bound::ValueRun& run, Stream& stream);
  // REQUIRES: there is an input source.
  absl::Status Take(const bound::TakeValue& take, const FeedInput& feed);
  absl::Status Load(const bound::Load& load, Stream& stream);
  const Value& at(SlotIndex slot) const { return slots_[slot]; }

 private:
  void Release(const std::vector<SlotIndex>& slots);
  // A view of a buffer of the arena, or a copy where the host cannot read it.
  absl::StatusOr<Tensor> TensorOf(const ValueOperand& operand, const void* data, Stream& stream);

  Device& device_;
  InputSource* const input_;
  std::vector<Value> slots_;
  std::vector<Tensor> loaded_;  // in this step; the stream may still read them
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_VALUE_SLOTS_H_
