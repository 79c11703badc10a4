// LoweredInstruction: what a step does, over buffers without addresses. One struct for each family,
// with the fields that count for it. Internal to executor/.
#ifndef WEFT_EXECUTOR_LOWERING_LOWERED_INSTRUCTION_H_
#define WEFT_EXECUTOR_LOWERING_LOWERED_INSTRUCTION_H_

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "executor/interfaces/communicator.h"
#include "executor/lowering/buffer_table.h"
#include "graph/graph.h"
#include "ops/kernel.h"
#include "ops/memory_work.h"
#include "ops/value_node.h"

namespace weft {

// Values whose size or kind is known only when they are there live in slots beside the buffers.
using SlotIndex = int;
inline constexpr SlotIndex kNoSlot = -1;

// An operand of an instruction that works on values: what is in a slot, or a tensor of this type in
// one of the instruction's input buffers, or nothing.
struct ValueOperand {
  SlotIndex slot = kNoSlot;
  int input = -1;  // index into lowered::ValueRun::inputs
  DType dtype = DType::kInvalid;
  Shape shape;
};

namespace lowered {

// Runs a prepared kernel.
struct KernelRun {
  Kernel* kernel = nullptr;
  std::vector<BufferIndex> inputs;  // kNoBuffer: omitted
  std::vector<BufferIndex> outputs;
  BufferIndex workspace = kNoBuffer;
  int64_t first_sample = 0;  // the samples of the micro-batch, counted in the step's batch
  int64_t samples = 0;
  // Pairs (input, output): the kernel may write the one over the other. Borrowed from the schema.
  const std::vector<std::pair<int, int>>* in_place = nullptr;
};

// Runs a kernel of the CPU for a device that has none, on copies in host memory: the inputs are
// copied there before, and the outputs back.
struct HostRun {
  Kernel* kernel = nullptr;
  std::vector<BufferIndex> inputs;  // kNoBuffer: omitted
  std::vector<BufferIndex> outputs;
  int64_t workspace_bytes = 0;  // in host memory
  int64_t first_sample = 0;     // as in KernelRun
  int64_t samples = 0;
};

// Rows of an input, into a buffer. With `ahead` they come from there, where they may be before the
// instruction runs (CopyFeedsAhead).
struct Fill {
  int feed = -1;  // index into Partition::inputs
  BufferIndex into = kNoBuffer;
  int64_t first_sample = 0;
  int64_t samples = 0;
  BufferIndex ahead = kNoBuffer;
};

// Sends and receives with a lane (`lane` >= 0) are DeviceCollectives', whose handle `channel` is. A
// lane is all that goes to a peer, or comes from it, that way: numbers from 0 on.
struct Send {
  Communicator::ChannelHandle channel = -1;
  BufferIndex from = kNoBuffer;
  int lane = -1;
};

// What was sent last on the channel has left its memory.
struct WaitSent {
  Communicator::ChannelHandle channel = -1;
  BufferIndex from = kNoBuffer;
  int lane = -1;
};

struct Receive {
  Communicator::ChannelHandle channel = -1;
  BufferIndex into = kNoBuffer;
  int lane = -1;
};

// Runs a collective over `buffers`, in place.
struct Collective {
  Communicator::CollectiveHandle handle = -1;  // or of DeviceCollectives
  bool on_device = false;                      // DeviceCollectives run it
  std::vector<BufferIndex> buffers;  // those of its schedule; the first stands for its whole region
  std::vector<BufferIndex> outputs;  // what is there afterwards
  int64_t region_bytes = 0;          // 0: the first buffer is all of its region
  int wait_signals = 0;              // communication list: may run after so many signals
  // Its members are replicas, each in a micro-batch of its own: messages name none.
  bool across_micro_batches = false;
};

// into += from.
struct Add {
  BufferIndex from = kNoBuffer;
  BufferIndex into = kNoBuffer;
  int64_t elements = 0;
  DType dtype = DType::kInvalid;
};

struct Copy {
  BufferIndex from = kNoBuffer;
  BufferIndex into = kNoBuffer;
  int64_t bytes = 0;
};

// A strided copy.
struct Pack {
  BufferIndex from = kNoBuffer;
  BufferIndex into = kNoBuffer;
  CopyRegion region;
};

// The scalar must be finite.
struct Guard {
  BufferIndex value = kNoBuffer;
  DType dtype = DType::kInvalid;
};

// All ranks agree that variables may change (StepCommit). What comes after it needs no other rank
// for what was summed before it.
struct Commit {};

// Tells the communication list that `count` signals have been given.
struct Signal {
  int count = 0;
};

// Waits until the communication list has finished `count` instructions.
struct Await {
  int count = 0;
};

// Runs a node on values, into slots.
struct ValueRun {
  ValueNode* node = nullptr;
  std::vector<BufferIndex> inputs;
  std::vector<ValueOperand> operands;
  std::vector<SlotIndex> results;   // kNoSlot: not wanted
  std::vector<SlotIndex> releases;  // slots that nothing needs after this instruction
};

// An input as it is, into a slot.
struct TakeValue {
  int feed = -1;
  SlotIndex slot = kNoSlot;
  std::vector<SlotIndex> releases;
};

// The tensor in a slot, which must be of this type, into a buffer.
struct Load {
  SlotIndex slot = kNoSlot;
  DType dtype = DType::kInvalid;
  Shape shape;
  BufferIndex into = kNoBuffer;
  std::vector<SlotIndex> releases;
};

// ---- Of unfinished programs only: a pass replaces them.

// A collective before ExpandCollectives.
struct CollectiveNode {
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  std::vector<BufferIndex> inputs;  // kNoBuffer: omitted
  std::vector<BufferIndex> outputs;
};

// Before BuildSums: the value is a leaf of these sums over micro-batches (indices into
// LoweringProgram::sums).
struct Leaf {
  std::vector<int> sums;
  BufferIndex value = kNoBuffer;
  bool is_own = false;   // the node before made the value, in a buffer of its own
  bool is_read = false;  // some node reads it as well
};

// Before OverlapCommunication: the sum is final here.
struct SumReady {
  int sum = -1;
};

}  // namespace lowered

struct LoweredInstruction {
  std::variant<lowered::KernelRun, lowered::HostRun, lowered::Fill, lowered::Send,
               lowered::WaitSent, lowered::Receive, lowered::Collective, lowered::Add,
               lowered::Copy, lowered::Pack, lowered::Guard, lowered::Commit, lowered::Signal,
               lowered::Await, lowered::ValueRun, lowered::TakeValue, lowered::Load,
               lowered::CollectiveNode, lowered::Leaf, lowered::SumReady>
      work;
  int info = -1;         // index into LoweredStep::infos; -1 = of no node
  int micro_batch = -1;  // job-wide index; -1 = once per step

  template <typename Family>
  const Family* As() const {
    return std::get_if<Family>(&work);
  }
  template <typename Family>
  Family* As() {
    return std::get_if<Family>(&work);
  }
};

// Each buffer that the instruction reads, or writes (its workspace too), as often as it is named.
// The visitor may put another one in its place. Omitted operands are left out.
using BufferVisitor = absl::FunctionRef<void(BufferIndex&)>;
void VisitReads(LoweredInstruction& instruction, BufferVisitor visit);
void VisitWrites(LoweredInstruction& instruction, BufferVisitor visit);
// The same without replacing.
using ConstBufferVisitor = absl::FunctionRef<void(BufferIndex)>;
void VisitReads(const LoweredInstruction& instruction, ConstBufferVisitor visit);
void VisitWrites(const LoweredInstruction& instruction, ConstBufferVisitor visit);

// "kernel", "wait_sent", ...: the family's word in texts.
const char* FamilyName(const LoweredInstruction& instruction);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_LOWERED_INSTRUCTION_H_
