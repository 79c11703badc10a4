// The working state of LowerStep: which buffer holds which value of which graph, and what has been
// emitted. Internal to executor/.
#ifndef WEFT_EXECUTOR_LOWERING_LOWERING_STATE_H_
#define WEFT_EXECUTOR_LOWERING_LOWERING_STATE_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/lowered_step.h"
#include "graph/partition.h"

namespace weft {

// One graph's values in one run of it: the begin graph, a micro graph for one micro-batch, the end
// graph.
struct Scope {
  const Graph* graph = nullptr;
  int micro_batch = -1;  // job-wide index
  const MicroBatch* rows = nullptr;
  std::vector<BufferIndex> buffers;  // by ValueId; kNoBuffer = not bound yet
  std::vector<SlotIndex> slots;      // by ValueId, of values that are in one; empty = none are
};

// Sums over micro-batches being built: a stack of subtrees for an ordered tree, one buffer else.
struct OpenBlock {
  const Accumulation* accumulation = nullptr;
  const Accumulation::Block* block = nullptr;
  BufferIndex result = kNoBuffer;  // where the first leaf lives and the sum ends up
  struct Subtree {
    BufferIndex buffer = kNoBuffer;
    int leaves = 0;
  };
  std::vector<Subtree> stack;
  int64_t elements = 0;
  DType dtype = DType::kInvalid;
  int ready_position = -1;  // instruction that made the sum final; -1 = not yet
};

// A collective that the communication thread plays while micro-batches still run.
struct AsyncCollective {
  NodeId node;     // of the end graph
  int index = -1;  // in the communication list, from 1: the value that a kAwait waits for
  int open_blocks = 0;
  int ready_position = -1;
  std::vector<BufferIndex> buffers;  // its regions and scratch
};

class LoweringState {
 public:
  LoweringState(const Partition& partition, const ExecutorEnvironment& environment)
      : partition_(partition), environment_(environment) {}

  // Scalars, channels, blocks and buckets: what must exist before the first instruction.
  absl::Status Begin();
  absl::Status LowerBegin();
  // `nodes` of the graph of the action's micro-batch, in order.
  absl::Status LowerMicroBatch(const Action& action, const std::vector<NodeId>& nodes);
  absl::Status LowerEnd();
  // Variable write-backs, in-place decisions, lifetimes.
  absl::StatusOr<LoweredStep> Finish();

 private:
  friend class CollectiveLowering;

  // Next instruction's position in the compute list.
  int position() const { return static_cast<int>(step_.compute.size()); }
  LoweredInstruction& Emit(OpCode code, const Node* node, const Scope& scope);
  int InfoOf(const Graph& graph, const Node& node);

  absl::StatusOr<BufferIndex> BufferOf(Scope& scope, ValueId value);
  absl::StatusOr<BufferIndex> BindInput(Scope& scope, const ValueDef& value);
  absl::StatusOr<BufferIndex> BindData(Scope& scope, const ValueDef& value, int feed);
  absl::StatusOr<BufferIndex> BindConstant(const ValueDef& value);
  absl::StatusOr<BufferIndex> NewOutput(Scope& scope, ValueId value);

  absl::Status SumConstants(Scope& scope);
  // Those of `blocks` that the scope's micro-batch is a leaf of.
  std::vector<int> SumsOf(const Scope& scope, const std::vector<int>& blocks) const;
  absl::Status LowerNode(Scope& scope, const Node& node);
  absl::Status LowerKernel(Scope& scope, const Node& node);
  absl::Status EmitKernel(Scope& scope, const Node& node, Kernel* kernel);
  // In value_lowering.cc: what is known only at run time.
  bool NeedsValues(const Graph& graph, const Node& node) const;
  absl::Status LowerValues(Scope& scope, const Node& node);
  absl::StatusOr<ValueOperand> OperandOf(Scope& scope, ValueId value,
                                         std::vector<BufferIndex>& inputs);
  absl::StatusOr<SlotIndex> TakeInput(Scope& scope, const ValueDef& value);
  absl::StatusOr<BufferIndex> LoadFromSlot(Scope& scope, ValueId value);
  SlotIndex SlotOf(const Scope& scope, ValueId value) const;
  SlotIndex NewSlot(Scope& scope, ValueId value, Value initial = {});
  // True if the report is made of a slot, and made.
  absl::StatusOr<bool> BindValueReport(Scope& scope, const std::string& name, ValueId value);
  void ReleaseSlots();
  absl::Status LowerAlias(Scope& scope, const Node& node, int input);
  absl::Status LowerSend(Scope& scope, const Node& node);
  absl::Status LowerReceive(Scope& scope, const Node& node);
  absl::StatusOr<Kernel*> KernelFor(const Graph& graph, const Node& node);
  absl::Status EmitWaits(const std::vector<BufferIndex>& inputs);
  absl::Status WaitForSends();

  // Some node of the graph reads the value.
  bool IsUsed(const Graph& graph, ValueId value);
  absl::Status OpenBlocks();
  absl::Status Accumulate(Scope& scope, const Node& node);
  // Adds `output` of the node to the sums (indices into blocks_) that it is a leaf of.
  absl::Status AddLeaves(Scope& scope, const Node& node, ValueId output,
                         const std::vector<int>& sums);
  absl::Status AddLeaf(OpenBlock& block, BufferIndex leaf);
  void EmitAdd(const OpenBlock& block, BufferIndex from, BufferIndex into);

  absl::Status LowerGuard(Scope& scope);
  absl::Status BindUpdates(Scope& scope);
  absl::Status BindReports(Scope& scope);
  // A variable that becomes the old value of another changing one (a swap) gets it from a copy.
  void KeepOldValues();
  // Decides which outputs are written over their inputs, then touches every operand.
  void MergeInPlace();
  std::set<BufferIndex> BorrowedInputs() const;

  const Partition& partition_;
  const ExecutorEnvironment& environment_;
  LoweredStep step_;
  Scope begin_;
  std::vector<std::unique_ptr<Scope>> micro_;  // by local micro-batch
  Scope end_;
  std::map<std::string, int> feeds_;  // name -> index into step_.feeds
  std::map<std::string, BufferIndex> scalar_buffers_;
  std::map<std::string, BufferIndex> variable_buffers_;
  std::map<std::string, BufferIndex> begin_outputs_;
  std::map<const void*, BufferIndex> constant_buffers_;
  std::map<std::pair<const Graph*, NodeId>, int> info_of_;
  std::map<std::pair<const Graph*, NodeId>, Kernel*> kernel_of_;
  std::map<int64_t, Communicator::ChannelHandle> channels_;  // by channel id
  struct UnsentBuffer {
    BufferIndex buffer = kNoBuffer;
    const Node* node = nullptr;  // the Send, and where it is
    const Scope* scope = nullptr;
  };
  std::map<int, UnsentBuffer> unsent_;  // by handle: what was sent last
  std::map<const Graph*, std::vector<bool>> used_;
  std::vector<OpenBlock> blocks_;
  std::map<std::string, std::vector<int>> blocks_of_output_;  // micro output -> blocks_
  std::map<std::string, int> block_of_input_;                 // end input -> blocks_
  std::map<std::string, BufferIndex> reserved_;               // end input -> its place in a bucket
  std::vector<AsyncCollective> async_;
  std::map<BufferIndex, int> awaited_by_;      // async output buffer -> async_
  std::map<std::string, int> async_of_block_;  // end input -> async_
  std::map<NodeId, int> async_of_node_;        // end graph's node -> async_
  int signals_ = 0;
  int awaited_ = 0;  // highest communication index already awaited
  // (instruction, output, input) pairs that may share memory.
  struct InPlaceCandidate {
    int position;
    BufferIndex output;
    BufferIndex input;
  };
  std::vector<InPlaceCandidate> in_place_;
  std::vector<std::pair<BufferIndex, std::string>> write_back_;  // value -> variable
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_LOWERING_STATE_H_
