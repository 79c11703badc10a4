#include "executor/lowering/group_kernels.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The kernel of an instruction that may be part of a group; null for others.
JoinableKernel* JoinableOf(const LoweredInstruction& instruction) {
  const auto* const run = instruction.As<lowered::KernelRun>();
  return run == nullptr ? nullptr : dynamic_cast<JoinableKernel*>(run->kernel);
}

// True if the instruction may change places with those beside it.
bool MayMove(const LoweredInstruction& instruction) {
  return instruction.micro_batch < 0 &&
         (instruction.As<lowered::KernelRun>() != nullptr ||
          instruction.As<lowered::Add>() != nullptr || instruction.As<lowered::Copy>() != nullptr ||
          instruction.As<lowered::Pack>() != nullptr);
}

// What happens with one buffer in a window, as far as it has been read.
struct BufferUse {
  int writer = -1;           // the last one, in the window
  std::vector<int> readers;  // since
};

// Consecutive instructions that may move. Each belongs to a unit: a group, or itself alone. Those
// of a group have one key and one level: the number of joinable kernels on the longest way
// to them. So no way leads from one to another, and groups of different levels make no circle.
class Window {
 public:
  // Instructions [first, last). `touched`: the buffers (roots) that something before them touches.
  Window(LoweredStep& step, int first, int last, const std::set<BufferIndex>& touched,
         int64_t max_held_bytes)
      : step_(step), first_(first), last_(last), touched_(touched), max_held_(max_held_bytes) {}

  // The instructions in their new order, groups joined.
  absl::Status AppendTo(std::vector<LoweredInstruction>& made) {
    for (int i = first_; i < last_; ++i) Place(i);
    std::map<int, std::set<int>> after;  // by unit: the units that need it
    std::vector<int> missing(units_.size());
    for (const auto& [before, behind] : edges_) {
      if (after[unit_of_[before - first_]].insert(unit_of_[behind - first_]).second) {
        ++missing[unit_of_[behind - first_]];
      }
    }
    // The next is the one whose last member came first.
    using Ready = std::pair<int, int>;
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    const auto add = [&](int unit) { ready.push({units_[unit].members.back(), unit}); };
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (missing[unit] == 0) add(static_cast<int>(unit));
    }
    while (!ready.empty()) {
      const int unit = ready.top().second;
      ready.pop();
      WEFT_RETURN_IF_ERROR(AppendUnit(units_[unit], made));
      for (const int behind : after[unit]) {
        if (--missing[behind] == 0) add(behind);
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Unit {
    std::vector<int> members;
    int64_t held_bytes = 0;
  };

  // Instruction i after those before it.
  void Place(int i) {
    const LoweredInstruction& instruction = step_.compute[i];
    std::set<int> needed;
    const auto look = [&](BufferIndex buffer, bool writes) {
      const BufferUse& use = uses_[step_.buffers.Root(buffer)];
      if (use.writer >= 0) needed.insert(use.writer);
      if (writes) needed.insert(use.readers.begin(), use.readers.end());
    };
    VisitReads(instruction, [&](BufferIndex buffer) { look(buffer, false); });
    VisitWrites(instruction, [&](BufferIndex buffer) { look(buffer, true); });
    const JoinableKernel* const kernel = JoinableOf(instruction);
    int level = 0;
    for (const int before : needed) {
      edges_.push_back({before, i});
      level = std::max(level, level_after_[before - first_]);
    }
    level_after_.push_back(kernel == nullptr ? level : level + 1);
    const int64_t held = kernel == nullptr ? 0 : NewBytesOf(instruction);
    unit_of_.push_back(UnitFor(kernel, level, held));
    units_[unit_of_.back()].members.push_back(i);
    units_[unit_of_.back()].held_bytes += held;
    VisitReads(instruction,
               [&](BufferIndex buffer) { uses_[step_.buffers.Root(buffer)].readers.push_back(i); });
    VisitWrites(instruction, [&](BufferIndex buffer) {
      uses_[step_.buffers.Root(buffer)] = {i, {}};
    });
  }

  int UnitFor(const JoinableKernel* kernel, int level, int64_t held) {
    const int fresh = static_cast<int>(units_.size());
    if (kernel == nullptr) {
      units_.emplace_back();
      return fresh;
    }
    const auto [open, is_new] = open_.try_emplace({kernel->group_key(), level}, fresh);
    if (!is_new && units_[open->second].held_bytes + held > max_held_) open->second = fresh;
    if (open->second == fresh) units_.emplace_back();
    return open->second;
  }

  // Of the arena, of buffers that are made in this window.
  int64_t NewBytesOf(const LoweredInstruction& instruction) const {
    std::set<BufferIndex> roots;
    const auto add = [&](BufferIndex buffer) {
      const BufferIndex root = step_.buffers.Root(buffer);
      if (!step_.buffers.is_fixed(root) && !touched_.contains(root)) roots.insert(root);
    };
    VisitReads(instruction, add);
    VisitWrites(instruction, add);
    int64_t bytes = 0;
    for (const BufferIndex root : roots) bytes += step_.buffers.bytes(root);
    return bytes;
  }

  absl::Status AppendUnit(const Unit& unit, std::vector<LoweredInstruction>& made) {
    if (unit.members.size() == 1) {
      made.push_back(std::move(step_.compute[unit.members.front()]));
      return absl::OkStatus();
    }
    static const auto* const kNoneInPlace = new std::vector<std::pair<int, int>>;
    lowered::KernelRun group;
    group.in_place = kNoneInPlace;  // it has been decided
    std::vector<JoinableKernel*> kernels;
    std::vector<int> infos;
    for (const int member : unit.members) {
      const auto& run = *step_.compute[member].As<lowered::KernelRun>();
      kernels.push_back(JoinableOf(step_.compute[member]));
      group.inputs.insert(group.inputs.end(), run.inputs.begin(), run.inputs.end());
      group.outputs.insert(group.outputs.end(), run.outputs.begin(), run.outputs.end());
      infos.push_back(step_.compute[member].info);
    }
    WEFT_ASSIGN_OR_RETURN(step_.kernels.emplace_back(), kernels.front()->Join(kernels));
    group.kernel = step_.kernels.back().get();
    made.push_back({std::move(group), InfoOf(infos), /*micro_batch=*/-1});
    return absl::OkStatus();
  }

  // A new info for nodes with these; -1 where one of them has none.
  int InfoOf(const std::vector<int>& infos) {
    if (std::count(infos.begin(), infos.end(), -1) > 0) return -1;
    const auto group = static_cast<int>(step_.infos.size());
    InstructionInfo info;
    info.node = absl::StrCat(step_.infos[infos.front()].node, " and ", infos.size() - 1, " more");
    info.op = step_.infos[infos.front()].op;
    info.shapes = absl::StrCat(step_.infos[infos.front()].shapes, ", ...");
    info.phase = step_.infos[infos.front()].phase;
    for (const int i : infos) {
      InstructionInfo& member = step_.infos[i];
      member.group = group;
      info.members.push_back({member.node, info.output_dtypes.size()});
      info.output_dtypes.insert(info.output_dtypes.end(), member.output_dtypes.begin(),
                                member.output_dtypes.end());
      info.output_elements.insert(info.output_elements.end(), member.output_elements.begin(),
                                  member.output_elements.end());
    }
    step_.infos.push_back(std::move(info));
    return group;
  }

  LoweredStep& step_;
  const int first_;
  const int last_;
  const std::set<BufferIndex>& touched_;
  const int64_t max_held_;
  std::vector<int> unit_of_;      // by instruction of the window
  std::vector<int> level_after_;  // likewise: of what needs it
  std::vector<Unit> units_;
  std::map<std::pair<std::string, int>, int> open_;  // by key and level: the unit that may grow
  std::map<BufferIndex, BufferUse> uses_;            // by root
  std::vector<std::pair<int, int>> edges_;           // (before, behind), as instructions
};

}  // namespace

absl::StatusOr<LoweringProgram> GroupKernels(LoweringProgram program, int64_t max_held_bytes) {
  LoweredStep& step = program.step;
  const auto end = static_cast<int>(step.compute.size());
  std::vector<LoweredInstruction> made;
  std::set<BufferIndex> touched;
  for (int first = 0; first < end;) {
    int last = first;
    while (last < end && MayMove(step.compute[last])) ++last;
    const bool is_window =
        std::any_of(step.compute.begin() + first, step.compute.begin() + last,
                    [](const LoweredInstruction& one) { return JoinableOf(one) != nullptr; });
    if (last == first) ++last;
    std::set<BufferIndex> touched_here;
    for (int i = first; i < last; ++i) {
      const auto add = [&](BufferIndex buffer) { touched_here.insert(step.buffers.Root(buffer)); };
      VisitReads(std::as_const(step.compute[i]), add);
      VisitWrites(std::as_const(step.compute[i]), add);
    }
    if (is_window) {
      WEFT_RETURN_IF_ERROR(Window(step, first, last, touched, max_held_bytes).AppendTo(made));
    } else {
      for (int i = first; i < last; ++i) made.push_back(std::move(step.compute[i]));
    }
    touched.merge(touched_here);
    first = last;
  }
  step.compute = std::move(made);
  return program;
}

}  // namespace weft
