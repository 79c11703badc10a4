#include "executor/lowering/merge_in_place.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "executor/lowering/compute_lifetimes.h"

namespace weft {
namespace {

// A variable that becomes the old value of another changing one (a swap) gets it from a copy.
void KeepOldValues(LoweringProgram& program) {
  std::set<BufferIndex> written;
  for (const VariableUpdate& update : program.updates) written.insert(update.variable);
  LoweredStep& step = program.step;
  for (VariableUpdate& update : program.updates) {
    if (!written.contains(update.value) || update.value == update.variable) continue;
    const int64_t bytes = step.buffers.bytes(update.value);
    const BufferIndex kept = step.buffers.AddArena(bytes);
    step.compute.push_back({lowered::Copy{update.value, kept, bytes}, -1, -1});
    update.value = kept;
  }
}

// The inputs that a forward run may borrow from its caller. To write over one, it would have to be
// copied first.
std::set<BufferIndex> BorrowedInputs(const LoweredStep& step) {
  std::set<BufferIndex> borrowed;
  for (const LoweredInstruction& instruction : step.compute) {
    const auto* const fill = instruction.As<lowered::Fill>();
    if (fill == nullptr) continue;
    const BufferIndex root = step.buffers.Root(fill->into);
    if (step.buffers.bytes(root) >= kMinMovedBytes) borrowed.insert(root);
  }
  return borrowed;
}

int64_t CountRoots(const BufferTable& buffers, const std::vector<BufferIndex>& operands,
                   BufferIndex root) {
  return std::count_if(operands.begin(), operands.end(), [&](BufferIndex operand) {
    return operand != kNoBuffer && buffers.Root(operand) == root;
  });
}

class InPlaceMerge {
 public:
  InPlaceMerge(LoweringProgram& program, bool training) : program_(program) {
    for (const VariableUpdate& update : program.updates) {
      variable_of_update_[update.value] = update.variable;
    }
    if (!training) borrowed_ = BorrowedInputs(program.step);
  }

  void Merge() {
    for (size_t i = 0; i < program_.step.compute.size(); ++i) {
      const auto* const run = program_.step.compute[i].As<lowered::KernelRun>();
      if (run == nullptr) continue;
      for (const auto& [input, output] : *run->in_place) {
        if (MayMerge(*run, input, output, static_cast<int>(i))) {
          program_.step.buffers.Merge(run->outputs[output], run->inputs[input]);
        }
      }
    }
  }

 private:
  bool MayMerge(const lowered::KernelRun& run, int from, int to, int position) const {
    if (from >= static_cast<int>(run.inputs.size()) || to >= static_cast<int>(run.outputs.size()) ||
        run.inputs[from] == kNoBuffer || run.outputs[to] == kNoBuffer) {
      return false;
    }
    const BufferTable& buffers = program_.step.buffers;
    const BufferIndex input = buffers.Root(run.inputs[from]);
    const BufferIndex output = run.outputs[to];
    if (borrowed_.contains(input) || !MayWriteOver(input, output)) return false;
    const bool is_last_use = buffers.last(input) == position;
    const bool is_new = buffers.Root(output) == output && !buffers.is_fixed(output) &&
                        !buffers.in_group(output) && buffers.first(output) == position;
    return is_last_use && is_new && buffers.bytes(output) <= buffers.bytes(run.inputs[from]) &&
           CountRoots(buffers, run.inputs, input) == 1 &&
           CountRoots(buffers, run.outputs, input) == 0;
  }

  bool MayWriteOver(BufferIndex input, BufferIndex output) const {
    const BufferTable& buffers = program_.step.buffers;
    const auto variable = variable_of_update_.find(output);
    if (!buffers.is_fixed(input)) return variable == variable_of_update_.end();
    return variable != variable_of_update_.end() && buffers.Root(variable->second) == input;
  }

  LoweringProgram& program_;
  std::map<BufferIndex, BufferIndex> variable_of_update_;
  std::set<BufferIndex> borrowed_;
};

// For those that were not made in place.
void CopyUpdates(LoweringProgram& program) {
  LoweredStep& step = program.step;
  for (const auto& [value, variable] : program.updates) {
    if (step.buffers.Root(value) == step.buffers.Root(variable)) continue;
    step.compute.push_back({lowered::Copy{value, variable, step.buffers.bytes(variable)}, -1, -1});
  }
  program.updates.clear();
}

}  // namespace

LoweringProgram MergeInPlace(LoweringProgram program, bool training) {
  KeepOldValues(program);
  program = ComputeLifetimes(std::move(program));
  InPlaceMerge(program, training).Merge();
  CopyUpdates(program);
  return program;
}

}  // namespace weft
