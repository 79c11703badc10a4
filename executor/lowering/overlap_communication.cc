#include "executor/lowering/overlap_communication.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class Overlap {
 public:
  explicit Overlap(LoweringProgram& program)
      : program_(program),
        missing_sums_(program.step.communication.size()),
        is_signalled_(program.step.communication.size()) {
    for (size_t i = 0; i < program.step.communication.size(); ++i) {
      const auto index = static_cast<int>(i);
      missing_sums_[i] = static_cast<int>(program.sums_of_communication[i].size());
      for (const int sum : program.sums_of_communication[i]) collective_of_sum_[sum] = index;
      const auto add = [&](BufferIndex buffer) { collective_of_[buffer] = index; };
      VisitReads(std::as_const(program.step.communication[i]), add);
      VisitWrites(std::as_const(program.step.communication[i]), add);
    }
  }

  absl::Status Run() {
    for (LoweredInstruction& instruction : program_.step.compute) {
      if (const auto* const ready = instruction.As<lowered::SumReady>()) {
        SignalAfter(ready->sum);
        continue;
      }
      const bool commits = instruction.As<lowered::Commit>() != nullptr;
      WEFT_RETURN_IF_ERROR(commits ? AwaitUntil(Signalled()) : AwaitFor(instruction));
      made_.push_back(std::move(instruction));
    }
    for (const LoweredReport& report : program_.step.reports) {
      WEFT_RETURN_IF_ERROR(AwaitUntil(NeededFor(report.buffer)));
    }
    WEFT_RETURN_IF_ERROR(AwaitUntil(static_cast<int>(program_.step.communication.size())));
    program_.step.compute = std::move(made_);
    return absl::OkStatus();
  }

 private:
  void SignalAfter(int sum) {
    const auto collective = collective_of_sum_.find(sum);
    if (collective == collective_of_sum_.end()) return;
    const int i = collective->second;
    if (--missing_sums_[i] > 0) return;
    is_signalled_[i] = true;
    made_.push_back({lowered::Signal{++signals_}, -1, -1});
    program_.step.communication[i].As<lowered::Collective>()->wait_signals = signals_;
  }

  absl::Status AwaitFor(const LoweredInstruction& instruction) {
    int needed = 0;
    const auto look = [&](BufferIndex buffer) { needed = std::max(needed, NeededFor(buffer)); };
    VisitReads(instruction, look);
    VisitWrites(instruction, look);
    return AwaitUntil(needed);
  }

  // How many collectives must be done before the buffer can be read.
  int NeededFor(BufferIndex buffer) const {
    const auto collective = collective_of_.find(buffer);
    if (collective == collective_of_.end() || !is_signalled_[collective->second]) return 0;
    return collective->second + 1;
  }

  // Collectives at the list's beginning that may run by now.
  int Signalled() const {
    const auto missing = std::find(is_signalled_.begin(), is_signalled_.end(), false);
    return static_cast<int>(missing - is_signalled_.begin());
  }

  // Until the first `count` collectives are done.
  absl::Status AwaitUntil(int count) {
    if (count <= awaited_) return absl::OkStatus();
    for (int i = awaited_; i < count; ++i) {
      if (is_signalled_[i]) continue;
      return absl::InternalError(
          absl::StrCat("collective ", i + 1,
                       " of the communication list is waited for before its sums are "
                       "complete; the action list does not fit the graphs"));
    }
    awaited_ = count;
    made_.push_back({lowered::Await{count}, -1, -1});
    return absl::OkStatus();
  }

  LoweringProgram& program_;
  std::vector<LoweredInstruction> made_;
  std::vector<int> missing_sums_;  // by instruction of the communication list
  std::vector<bool> is_signalled_;
  std::map<int, int> collective_of_sum_;
  std::map<BufferIndex, int> collective_of_;  // by buffer; what the compute list shares with it
  int signals_ = 0;
  int awaited_ = 0;
};

}  // namespace

absl::StatusOr<LoweringProgram> OverlapCommunication(LoweringProgram program) {
  WEFT_RETURN_IF_ERROR(Overlap(program).Run());
  return program;
}

}  // namespace weft
