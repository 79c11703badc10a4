#include "executor/lowering/build_sums.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using lowered::Leaf;

class SumBuilder {
 public:
  explicit SumBuilder(LoweringProgram& program)
      : program_(program), partial_(program.sums.size()), is_ready_(program.sums.size()) {
    for (size_t i = 0; i < program.sums.size(); ++i) {
      sum_in_[program.sums[i].buffer] = static_cast<int>(i);
    }
  }

  absl::Status Build();

 private:
  // A part of a sum: `leaves` consecutive ones, added up in `buffer`.
  struct Partial {
    BufferIndex buffer = kNoBuffer;
    int leaves = 0;
  };

  BufferTable& buffers() { return program_.step.buffers; }
  void MakeFirstLeavesInPlace();
  int HomeOf(const Leaf& leaf, int micro_batch, const std::vector<bool>& begun) const;
  void MoveOperand(BufferIndex from, BufferIndex into, int position);
  absl::Status CheckReads(const LoweredInstruction& instruction) const;
  void AddLeaf(const LoweredInstruction& instruction, const Leaf& leaf, int home);
  void AddToSum(int sum, BufferIndex leaf);
  void EmitCopy(const LoweredInstruction& source, BufferIndex from, BufferIndex into);
  void EmitOncePerStep(decltype(LoweredInstruction::work) work) {
    built_.push_back({std::move(work), -1, -1});
  }

  LoweringProgram& program_;
  std::vector<LoweredInstruction> built_;
  std::vector<std::vector<Partial>> partial_;  // by sum: a stack for an ordered tree, one else
  std::vector<bool> is_ready_;                 // by sum
  std::map<BufferIndex, int> sum_in_;          // by buffer in which one grows
  std::map<int, int> home_;  // position of a leaf that is made in a sum's buffer -> the sum
};

// The sum in whose buffer the node before may make the value: the first one that begins with it.
int SumBuilder::HomeOf(const Leaf& leaf, int micro_batch, const std::vector<bool>& begun) const {
  const BufferTable& buffers = program_.step.buffers;
  if (!leaf.is_own || buffers.is_fixed(leaf.value) || buffers.in_group(leaf.value)) return -1;
  for (const int i : leaf.sums) {
    const StepSum& sum = program_.sums[i];
    if (sum.first == micro_batch && !begun[i] &&
        buffers.bytes(sum.buffer) >= buffers.bytes(leaf.value)) {
      return i;
    }
  }
  return -1;
}

// The instructions of the node right before the leaf at `position` work in `into` instead.
void SumBuilder::MoveOperand(BufferIndex from, BufferIndex into, int position) {
  for (int i = position - 1; i >= 0; --i) {
    LoweredInstruction& instruction = program_.step.compute[i];
    bool names_it = false;
    const auto move = [&](BufferIndex& buffer) {
      if (buffer != from) return;
      buffer = into;
      names_it = true;
    };
    VisitReads(instruction, move);
    VisitWrites(instruction, move);
    if (!names_it && instruction.As<Leaf>() == nullptr) return;
  }
}

void SumBuilder::MakeFirstLeavesInPlace() {
  std::vector<bool> begun(program_.sums.size());
  for (int i = 0; i < static_cast<int>(program_.step.compute.size()); ++i) {
    const LoweredInstruction& instruction = program_.step.compute[i];
    const Leaf* const leaf = instruction.As<Leaf>();
    if (leaf == nullptr) continue;
    const int home = HomeOf(*leaf, instruction.micro_batch, begun);
    for (const int sum : leaf->sums) begun[sum] = true;
    if (home < 0) continue;
    MoveOperand(leaf->value, program_.sums[home].buffer, i);
    home_[i] = home;
  }
}

void SumBuilder::EmitCopy(const LoweredInstruction& source, BufferIndex from, BufferIndex into) {
  const int64_t bytes = std::min(buffers().bytes(from), buffers().bytes(into));
  built_.push_back({lowered::Copy{from, into, bytes}, source.info, source.micro_batch});
}

void SumBuilder::AddToSum(int index, BufferIndex leaf) {
  const StepSum& sum = program_.sums[index];
  std::vector<Partial>& stack = partial_[index];
  if (stack.empty() && leaf != sum.buffer) {
    EmitOncePerStep(lowered::Copy{leaf, sum.buffer, DTypeBytes(sum.dtype, sum.elements)});
    leaf = sum.buffer;
  }
  stack.push_back({leaf, 1});
  while (stack.size() >= 2) {
    const Partial last = stack.back();
    Partial& before = stack[stack.size() - 2];
    if (sum.ordered_tree && last.leaves != before.leaves) break;
    EmitOncePerStep(lowered::Add{last.buffer, before.buffer, sum.elements, sum.dtype});
    before.leaves += last.leaves;
    stack.pop_back();
  }
  if (stack.size() > 1 || stack.front().leaves < sum.last - sum.first) return;
  is_ready_[index] = true;
  EmitOncePerStep(lowered::SumReady{index});
}

// `home`: the sum in whose buffer the node has made the value, or -1.
void SumBuilder::AddLeaf(const LoweredInstruction& instruction, const Leaf& leaf, int home) {
  const bool is_shared = leaf.is_read || leaf.sums.size() > 1;
  if (home >= 0) {
    const BufferIndex made = program_.sums[home].buffer;
    // A collective may sum it over ranks in another thread while others still read the value.
    if (is_shared) EmitCopy(instruction, made, leaf.value);
    AddToSum(home, made);
  }
  const bool is_free = !is_shared && leaf.is_own && !buffers().is_fixed(leaf.value);
  for (const int sum : leaf.sums) {
    if (sum == home) continue;
    BufferIndex own = leaf.value;
    if (!is_free) {
      own = partial_[sum].empty() ? program_.sums[sum].buffer
                                  : buffers().AddArena(buffers().bytes(leaf.value));
      EmitCopy(instruction, leaf.value, own);
    }
    AddToSum(sum, own);
  }
}

absl::Status NotComplete(const StepSum& sum) {
  return absl::InternalError(
      absl::StrCat("the sum '", sum.end_input, "' is not complete before the update"));
}

// Only the end graph reads sums.
absl::Status SumBuilder::CheckReads(const LoweredInstruction& instruction) const {
  absl::Status status;
  VisitReads(instruction, [&](BufferIndex buffer) {
    const auto sum = sum_in_.find(buffer);
    if (sum == sum_in_.end() || is_ready_[sum->second] || instruction.micro_batch >= 0) return;
    status = NotComplete(program_.sums[sum->second]);
  });
  return status;
}

absl::Status SumBuilder::Build() {
  MakeFirstLeavesInPlace();
  for (int i = 0; i < static_cast<int>(program_.step.compute.size()); ++i) {
    LoweredInstruction& instruction = program_.step.compute[i];
    if (const Leaf* const leaf = instruction.As<Leaf>()) {
      const auto home = home_.find(i);
      AddLeaf(instruction, *leaf, home != home_.end() ? home->second : -1);
      continue;
    }
    WEFT_RETURN_IF_ERROR(CheckReads(instruction));
    built_.push_back(std::move(instruction));
  }
  for (size_t i = 0; i < program_.sums.size(); ++i) {
    if (!is_ready_[i]) return NotComplete(program_.sums[i]);
  }
  program_.step.compute = std::move(built_);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoweringProgram> BuildSums(LoweringProgram program) {
  WEFT_RETURN_IF_ERROR(SumBuilder(program).Build());
  return program;
}

}  // namespace weft
