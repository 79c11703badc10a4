// ValueBinding: where the values of a step's graphs are, while its nodes are being bound. Internal
// to executor/.
#ifndef WEFT_EXECUTOR_LOWERING_VALUE_BINDING_H_
#define WEFT_EXECUTOR_LOWERING_VALUE_BINDING_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/lowering_program.h"
#include "executor/lowering/resident_buffers.h"
#include "executor/lowering/schedule_nodes.h"
#include "graph/partition.h"

namespace weft {

// Whether a value of this type has no place in the arena: only the run knows its size or kind.
bool IsUnplanned(const ValueType& type);

// Borrows everything; adds buffers, slots and what fills them to the program.
class ValueBinding {
 public:
  ValueBinding(const StepSchedule& schedule, const Partition& partition,
               const ExecutorEnvironment& environment, LoweringProgram& program);

  // Step scalars and sums: what must be there before the first node.
  absl::Status Begin();
  // The begin graph's outputs are inputs of the other graphs from now on.
  absl::Status BindBeginOutputs();

  // Of a value that is to be read. A data input is filled, once a scope; what lies in a slot gets a
  // buffer to be loaded into.
  absl::StatusOr<BufferIndex> BufferOf(int scope, ValueId id);
  // For a node's output.
  absl::StatusOr<BufferIndex> NewOutput(int scope, ValueId id);
  // The output is the same memory.
  void Alias(int scope, ValueId output, BufferIndex buffer) {
    buffers_[scope][output.value] = buffer;
  }

  SlotIndex SlotOf(int scope, ValueId id) const;
  SlotIndex NewSlot(int scope, ValueId id, int info, Value initial = {});
  // For an instruction that works on values and has these inputs.
  absl::StatusOr<ValueOperand> OperandOf(int scope, ValueId id, std::vector<BufferIndex>& inputs);

 private:
  absl::Status AddSums();
  absl::StatusOr<BufferIndex> BufferOfInput(int scope, const ValueDef& value);
  absl::StatusOr<BufferIndex> FillFrom(int scope, const ValueDef& value, int feed);
  absl::StatusOr<SlotIndex> TakeInput(int scope, const ValueDef& value);
  absl::StatusOr<BufferIndex> BufferForSlot(int scope, const ValueDef& value);
  void Emit(int scope, decltype(LoweredInstruction::work) work);

  const StepSchedule& schedule_;
  const Partition& partition_;
  const ExecutorEnvironment& environment_;
  LoweringProgram& program_;
  ResidentBuffers resident_;
  std::map<std::string, int> feeds_;  // name -> index into LoweredStep::feeds
  std::map<std::string, int> sums_;   // end input -> index into LoweringProgram::sums
  std::map<std::string, BufferIndex> begin_outputs_;
  // By scope, by ValueId; kNoBuffer = not bound yet, kNoSlot = not in one, empty = none is.
  std::vector<std::vector<BufferIndex>> buffers_;
  std::vector<std::vector<SlotIndex>> slots_;
  std::vector<int> makers_;  // by slot: the info of the node that fills it
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_VALUE_BINDING_H_
