// Instruction: one entry of a compiled step, with its addresses. Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_INSTRUCTION_H_
#define WEFT_EXECUTOR_PROGRAM_INSTRUCTION_H_

#include <memory>
#include <vector>

#include "executor/lowering/lowered_step.h"

namespace weft {

// An instruction of lowered_step.h with its kernel and the addresses of its operands. Borrows the
// program's memory.
struct Instruction {
  OpCode code = OpCode::kKernel;
  int info = -1;
  int micro_batch = -1;
  Kernel* kernel = nullptr;
  KernelContext context;  // points into `inputs` and `outputs`
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  int handle = -1;
  int feed = -1;
  BufferIndex filled = kNoBuffer;  // kFill: outputs[0]
  int64_t first = 0;               // as in LoweredInstruction
  int64_t count = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
  DType dtype = DType::kInvalid;
  CopyRegion region;
  int wait_signals = 0;
  bool is_last_before_await = false;  // a signal with nothing to compute after it
  bool is_beside_compute = false;     // of the communication list
  ValueNode* value_node = nullptr;
  std::vector<ValueOperand> operands;
  std::vector<SlotIndex> results;
  std::vector<SlotIndex> releases;
  // Host memory standing in for each of a communicator's buffers (inputs, else outputs) when the
  // device is not host-accessible.
  std::vector<std::shared_ptr<Buffer>> staging;
  std::vector<int64_t> staging_bytes;
};

// As it was lowered, without addresses. `total_micro_batches`: of the step, on all ranks.
Instruction NewInstruction(const LoweredInstruction& lowered, int total_micro_batches);

// target += source, element by element; float types, float64 and integers.
absl::Status AddInto(DType dtype, int64_t elements, const void* source, void* target);
// Copies the rows of `region`.
void CopyRows(const CopyRegion& region, const void* source, void* target);
// First element of a floating tensor that is not finite, or -1.
int64_t FindNonFinite(DType dtype, int64_t elements, const void* data);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_INSTRUCTION_H_
