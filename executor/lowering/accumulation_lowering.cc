// The part of LoweringState that sums over micro-batches, and the end of the step.
#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "executor/lowering/collective_lowering.h"
#include "executor/lowering/lowering_state.h"
#include "executor/lowering/node_context.h"
#include "graph/schedule/end_order.h"
#include "platform/status_macros.h"

namespace weft {

bool LoweringState::IsUsed(const Graph& graph, ValueId value) {
  auto [it, added] = used_.try_emplace(&graph);
  if (added) {
    for (const std::vector<Graph::Use>& uses : graph.BuildUses()) {
      it->second.push_back(!uses.empty());
    }
  }
  return it->second[value.value];
}

std::vector<int> LoweringState::SumsOf(const Scope& scope, const std::vector<int>& blocks) const {
  std::vector<int> sums;
  for (int index : blocks) {
    const Accumulation::Block& block = *blocks_[index].block;
    if (scope.micro_batch >= block.first && scope.micro_batch < block.last) sums.push_back(index);
  }
  return sums;
}

absl::Status LoweringState::Accumulate(Scope& scope, const Node& node) {
  for (ValueId output : node.outputs) {
    if (!output.valid()) continue;
    const auto blocks = blocks_of_output_.find(scope.graph->value(output).name);
    if (blocks == blocks_of_output_.end()) continue;
    WEFT_RETURN_IF_ERROR(AddLeaves(scope, node, output, SumsOf(scope, blocks->second)));
  }
  return absl::OkStatus();
}

absl::Status LoweringState::AddLeaves(Scope& scope, const Node& node, ValueId output,
                                      const std::vector<int>& sums) {
  WEFT_ASSIGN_OR_RETURN(BufferIndex buffer, BufferOf(scope, output));
  const bool shared = IsUsed(*scope.graph, output) || sums.size() > 1;
  const bool exclusive =
      !shared && node.schema->aliases().empty() && !step_.buffers.is_fixed(buffer);
  const auto copy_to = [&](BufferIndex target) {
    LoweredInstruction& copy = Emit(OpCode::kCopy, &node, scope);
    copy.inputs = {buffer};
    copy.outputs = {target};
    copy.bytes = std::min(step_.buffers.bytes(buffer), step_.buffers.bytes(target));
  };
  const auto is_home = [&](const OpenBlock& block) {
    return buffer == block.result && block.stack.empty();
  };
  int home = -1;
  for (int index : sums) {
    if (!shared || !is_home(blocks_[index])) continue;
    // The value was made where a sum will grow, or a collective of another thread will sum over
    // ranks. Readers and the other sums get a copy that stays.
    const BufferIndex kept = step_.buffers.AddArena(step_.buffers.bytes(buffer));
    copy_to(kept);
    scope.buffers[output.value] = kept;
    WEFT_RETURN_IF_ERROR(AddLeaf(blocks_[index], buffer));
    buffer = kept;
    home = index;
    break;
  }
  for (int index : sums) {
    if (index == home) continue;
    OpenBlock& block = blocks_[index];
    BufferIndex leaf = buffer;
    if (!exclusive && !is_home(block)) {
      leaf =
          block.stack.empty() ? block.result : step_.buffers.AddArena(step_.buffers.bytes(buffer));
      copy_to(leaf);
    }
    WEFT_RETURN_IF_ERROR(AddLeaf(block, leaf));
  }
  return absl::OkStatus();
}

void LoweringState::EmitAdd(const OpenBlock& block, BufferIndex from, BufferIndex into) {
  LoweredInstruction& add = Emit(OpCode::kAdd, nullptr, end_);
  add.inputs = {from};
  add.outputs = {into};
  add.elements = block.elements;
  add.dtype = block.dtype;
}

absl::Status LoweringState::AddLeaf(OpenBlock& block, BufferIndex leaf) {
  if (block.stack.empty() && leaf != block.result) {
    LoweredInstruction& copy = Emit(OpCode::kCopy, nullptr, end_);
    copy.inputs = {leaf};
    copy.outputs = {block.result};
    copy.bytes = DTypeBytes(block.dtype, block.elements);
    leaf = block.result;
  }
  block.stack.push_back({leaf, 1});
  while (block.stack.size() >= 2) {
    OpenBlock::Subtree& last = block.stack.back();
    OpenBlock::Subtree& before = block.stack[block.stack.size() - 2];
    if (block.accumulation->ordered_tree && last.leaves != before.leaves) break;
    EmitAdd(block, last.buffer, before.buffer);
    before.leaves += last.leaves;
    block.stack.pop_back();
  }
  const int leaves = block.block->last - block.block->first;
  if (block.stack.size() == 1 && block.stack.front().leaves == leaves) {
    block.ready_position = position();
    CollectiveLowering(*this).BlockIsReady(block.block->end_input);
  }
  return absl::OkStatus();
}

absl::Status LoweringState::LowerEnd() {
  WEFT_RETURN_IF_ERROR(WaitForSends());
  for (const OpenBlock& block : blocks_) {
    if (block.ready_position < 0) {
      return absl::InternalError(
          absl::StrCat("the sum '", block.block->end_input, "' is not complete before the update"));
    }
  }
  WEFT_ASSIGN_OR_RETURN(const EndOrder order, OrderOfEnd(partition_));
  for (size_t i = 0; i < order.nodes.size(); ++i) {
    if (i == order.before_guard) WEFT_RETURN_IF_ERROR(LowerGuard(end_));
    WEFT_RETURN_IF_ERROR(LowerNode(end_, partition_.end.node(order.nodes[i])));
  }
  if (order.before_guard == order.nodes.size()) WEFT_RETURN_IF_ERROR(LowerGuard(end_));
  WEFT_RETURN_IF_ERROR(BindUpdates(end_));
  WEFT_RETURN_IF_ERROR(BindReports(end_));
  if (awaited_ < static_cast<int>(step_.communication.size())) {
    awaited_ = static_cast<int>(step_.communication.size());
    Emit(OpCode::kAwait, nullptr, end_).handle = awaited_;
  }
  return WaitForSends();
}

// Before any update.
absl::Status LoweringState::LowerGuard(Scope& scope) {
  if (partition_.guard.empty()) return absl::OkStatus();
  const Graph& graph = *scope.graph;
  const std::optional<ValueId> guard = graph.FindValue(partition_.guard);
  WEFT_ASSIGN_OR_RETURN(BufferIndex buffer, BufferOf(scope, *guard));
  WEFT_RETURN_IF_ERROR(EmitWaits({buffer}));
  // The first instruction that may fail without ending the job; `Run` relies on it being in the
  // same place on all ranks.
  LoweredInstruction& instruction = Emit(OpCode::kGuard, nullptr, scope);
  instruction.inputs = {buffer};
  instruction.dtype = graph.value(*guard).type.dtype;
  return absl::OkStatus();
}

absl::Status LoweringState::BindUpdates(Scope& scope) {
  for (const Variable& variable : scope.graph->variables()) {
    if (!variable.update.valid() || variable.update == variable.value) continue;
    WEFT_ASSIGN_OR_RETURN(BufferIndex value, BufferOf(scope, variable.update));
    WEFT_RETURN_IF_ERROR(BufferOf(scope, variable.value).status());
    write_back_.push_back({value, variable.name});
  }
  return absl::OkStatus();
}

absl::Status LoweringState::BindReports(Scope& scope) {
  for (const std::string& name : partition_.reports) {
    const std::optional<ValueId> value = scope.graph->FindValue(name);
    if (!value)
      return absl::InternalError(absl::StrCat("the end graph has no output '", name, "'"));
    WEFT_ASSIGN_OR_RETURN(const bool is_bound, BindValueReport(scope, name, *value));
    if (is_bound) continue;
    WEFT_ASSIGN_OR_RETURN(BufferIndex buffer, BufferOf(scope, *value));
    WEFT_RETURN_IF_ERROR(EmitWaits({buffer}));
    const ValueType& type = scope.graph->value(*value).type;
    step_.reports.push_back({name, buffer, type.dtype, *type.shape.ToConcrete(), kNoSlot});
  }
  return absl::OkStatus();
}

namespace {

int CountRoots(const BufferTable& buffers, const std::vector<BufferIndex>& operands,
               BufferIndex root) {
  int count = 0;
  for (BufferIndex operand : operands) {
    if (operand != kNoBuffer && buffers.Root(operand) == root) ++count;
  }
  return count;
}

}  // namespace

// What the caller of a forward run may lend: to write over it, it would have to be copied first.
std::set<BufferIndex> LoweringState::BorrowedInputs() const {
  std::set<BufferIndex> borrowed;
  if (partition_.training) return borrowed;
  for (const LoweredInstruction& instruction : step_.compute) {
    if (instruction.code != OpCode::kFill) continue;
    const BufferIndex root = step_.buffers.Root(instruction.outputs[0]);
    if (step_.buffers.bytes(root) >= kMinMovedBytes) borrowed.insert(root);
  }
  return borrowed;
}

void LoweringState::MergeInPlace() {
  BufferTable& buffers = step_.buffers;
  for (int i = 0; i < position(); ++i) {
    const LoweredInstruction& instruction = step_.compute[i];
    for (const std::vector<BufferIndex>* operands : {&instruction.inputs, &instruction.outputs}) {
      for (BufferIndex buffer : *operands) {
        if (buffer != kNoBuffer) buffers.Touch(buffer, i);
      }
    }
    if (instruction.workspace != kNoBuffer) buffers.Touch(instruction.workspace, i);
  }
  CollectiveLowering(*this).TouchAsync();
  // Read by the host after the last instruction, write-backs included.
  const int after_all = position() + static_cast<int>(write_back_.size()) + 1;
  for (const LoweredReport& report : step_.reports) {
    if (report.buffer != kNoBuffer) buffers.Touch(report.buffer, after_all);
  }
  std::map<BufferIndex, BufferIndex> variable_of_update;
  for (const auto& [value, name] : write_back_) {
    variable_of_update[value] = variable_buffers_[name];
  }
  const std::set<BufferIndex> borrowed = BorrowedInputs();
  for (const InPlaceCandidate& hint : in_place_) {
    const BufferIndex input = buffers.Root(hint.input);
    const BufferIndex output = buffers.Root(hint.output);
    if (borrowed.contains(input)) continue;
    const auto variable = variable_of_update.find(hint.output);
    const bool updates_itself =
        variable != variable_of_update.end() && buffers.Root(variable->second) == input;
    const bool allowed =
        buffers.is_fixed(input) ? updates_itself : variable == variable_of_update.end();
    const LoweredInstruction& instruction = step_.compute[hint.position];
    if (!allowed || buffers.last(input) != hint.position || buffers.is_fixed(output) ||
        buffers.in_group(output) || output != hint.output ||
        buffers.first(output) != hint.position ||
        buffers.bytes(hint.output) > buffers.bytes(hint.input) ||
        CountRoots(buffers, instruction.inputs, input) != 1 ||
        CountRoots(buffers, instruction.outputs, input) != 0) {
      continue;
    }
    buffers.Merge(hint.output, hint.input);
  }
}

void LoweringState::KeepOldValues() {
  std::set<BufferIndex> written;
  for (const auto& [value, name] : write_back_) written.insert(variable_buffers_[name]);
  for (auto& [value, name] : write_back_) {
    if (!written.contains(value) || value == variable_buffers_[name]) continue;
    const BufferIndex kept = step_.buffers.AddArena(step_.buffers.bytes(value));
    LoweredInstruction& copy = Emit(OpCode::kCopy, nullptr, end_);
    copy.inputs = {value};
    copy.outputs = {kept};
    copy.bytes = step_.buffers.bytes(value);
    value = kept;
  }
}

absl::StatusOr<LoweredStep> LoweringState::Finish() {
  KeepOldValues();
  // Copies for updates that cannot be made in place; decided after merging, so appended now and
  // dropped when value and variable turn out to be the same memory.
  const int end_of_work = position();
  for (const auto& [value, name] : write_back_) {
    WEFT_RETURN_IF_ERROR(EmitWaits({value}));
    step_.buffers.Touch(value, end_of_work);
  }
  MergeInPlace();
  for (const auto& [value, name] : write_back_) {
    const BufferIndex variable = variable_buffers_[name];
    if (step_.buffers.Root(value) == step_.buffers.Root(variable)) continue;
    LoweredInstruction& copy = Emit(OpCode::kCopy, nullptr, end_);
    copy.inputs = {value};
    copy.outputs = {variable};
    copy.bytes = step_.buffers.bytes(variable);
    step_.buffers.Touch(value, position() - 1);
  }
  ReleaseSlots();
  step_.variables.assign(variable_buffers_.begin(), variable_buffers_.end());
  return std::move(step_);
}

}  // namespace weft
