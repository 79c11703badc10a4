// A step as two flat lists of instructions over buffers, without addresses. Pure data but for
// prepared kernels. Internal to executor/.
#ifndef WEFT_EXECUTOR_LOWERING_LOWERED_STEP_H_
#define WEFT_EXECUTOR_LOWERING_LOWERED_STEP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/interfaces/input_source.h"
#include "executor/lowering/buffer_table.h"
#include "graph/graph.h"
#include "ops/kernel.h"
#include "ops/value_node.h"
#include "tensor/tensor.h"
#include "tensor/value.h"

namespace weft {

enum class OpCode : uint8_t {
  kKernel,      // run a prepared kernel
  kFill,        // input rows into outputs[0]
  kSend,        // inputs[0] on channel `handle`
  kWaitSent,    // channel `handle`'s memory is free again
  kReceive,     // channel `handle` into outputs[0]
  kCollective,  // play collective `handle` over inputs (its buffers)
  kAdd,         // outputs[0] += inputs[0], `elements` of `dtype`
  kCopy,        // outputs[0] = inputs[0], `bytes`
  kPack,        // strided copy described by `region`
  kGuard,       // inputs[0] must be finite
  kSignal,      // tells the communication list that `handle` signals have been given
  kAwait,       // waits until the communication list has finished `handle` instructions
  kValues,      // run `value_node` on `operands`, into the slots `results`
  kTakeValue,   // input `feed` as it is into the slot results[0]
  kLoad,        // the tensor in the slot operands[0], which must be of its type, into outputs[0]
};

// Inputs and reports of so many bytes may lie outside the arena (movable_buffers.h); below, a copy
// costs less than finding out whether it is needed.
inline constexpr int64_t kMinMovedBytes = 4096;

// Values whose size or kind is known only when they are there live in slots beside the buffers.
using SlotIndex = int;
inline constexpr SlotIndex kNoSlot = -1;

// An operand of an instruction that works on values: what is in a slot, or a tensor of this type in
// one of the instruction's input buffers, or nothing.
struct ValueOperand {
  SlotIndex slot = kNoSlot;
  int input = -1;  // index into LoweredInstruction::inputs
  DType dtype = DType::kInvalid;
  Shape shape;
};

// `rows` runs of `bytes` bytes, from source to target with these strides (all in bytes).
struct CopyRegion {
  int64_t rows = 0;
  int64_t bytes = 0;
  int64_t source_stride = 0;
  int64_t target_stride = 0;
  int64_t source_offset = 0;
  int64_t target_offset = 0;
};

// What messages and statistics say about an instruction.
struct InstructionInfo {
  std::string node;
  std::string op;
  std::string shapes;  // "float32[2,3], ... -> float32[2,4]"
  Phase phase = Phase::kForward;
  std::vector<DType> output_dtypes;      // for check_numerics
  std::vector<int64_t> output_elements;  // likewise
};

struct LoweredInstruction {
  OpCode code = OpCode::kKernel;
  int info = -1;         // index into LoweredStep::infos
  int micro_batch = -1;  // job-wide index; -1 = once per step
  Kernel* kernel = nullptr;
  std::vector<BufferIndex> inputs;
  std::vector<BufferIndex> outputs;
  BufferIndex workspace = kNoBuffer;
  int handle = -1;
  int feed = -1;      // kFill: index into Partition::inputs
  int64_t first = 0;  // kFill, kKernel: the samples of the micro-batch, counted in the step's batch
  int64_t count = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
  DType dtype = DType::kInvalid;
  CopyRegion region;
  int wait_signals = 0;  // communication list: may run after so many signals
  ValueNode* value_node = nullptr;
  std::vector<ValueOperand> operands;
  std::vector<SlotIndex> results;   // kNoSlot: not wanted
  std::vector<SlotIndex> releases;  // slots that nothing needs after this instruction
};

struct LoweredReport {
  std::string name;
  BufferIndex buffer = kNoBuffer;
  DType dtype = DType::kInvalid;
  Shape shape;
  SlotIndex slot = kNoSlot;  // where it is when it has no buffer
};

struct StepScalar {
  std::string name;
  DType dtype = DType::kInvalid;
  Tensor device_value;
};

struct LoweredStep {
  BufferTable buffers;
  std::vector<LoweredInstruction> compute;
  std::vector<LoweredInstruction> communication;  // played by the communication thread, in order
  std::vector<InstructionInfo> infos;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<Tensor> constants;  // keeps device copies alive
  std::vector<Value> slots;       // as a step begins: constants, else an invalid tensor
  std::vector<std::unique_ptr<ValueNode>> value_nodes;
  std::vector<std::unique_ptr<Node>> nodes;  // that the value nodes are of
  std::vector<StepScalar> scalars;
  std::vector<FeedInput> feeds;
  std::vector<LoweredReport> reports;
  // Fixed buffers that get their addresses when the variables get memory.
  std::vector<std::pair<std::string, BufferIndex>> variables;
  int64_t workspace_bytes = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_LOWERED_STEP_H_
