#include "executor/lowering/step_description.h"

#include <set>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// The number of the channel, collective, signal or await; -1 = it has none.
int NumberOf(const LoweredInstruction& instruction) {
  if (const auto* const send = instruction.As<lowered::Send>()) return send->channel;
  if (const auto* const wait = instruction.As<lowered::WaitSent>()) return wait->channel;
  if (const auto* const receive = instruction.As<lowered::Receive>()) return receive->channel;
  if (const auto* const collective = instruction.As<lowered::Collective>())
    return collective->handle;
  if (const auto* const signal = instruction.As<lowered::Signal>()) return signal->count;
  if (const auto* const await = instruction.As<lowered::Await>()) return await->count;
  return -1;
}

std::string LineOf(const LoweredInstruction& instruction,
                   const std::vector<InstructionInfo>& infos) {
  std::string line = FamilyName(instruction);
  const auto* const collective = instruction.As<lowered::Collective>();
  const auto* const send = instruction.As<lowered::Send>();
  const auto* const wait = instruction.As<lowered::WaitSent>();
  const auto* const receive = instruction.As<lowered::Receive>();
  const bool on_device =
      (collective != nullptr && collective->on_device) || (send != nullptr && send->lane >= 0) ||
      (wait != nullptr && wait->lane >= 0) || (receive != nullptr && receive->lane >= 0);
  if (on_device) line += " on_device";
  if (instruction.info >= 0) {
    const InstructionInfo& info = infos[instruction.info];
    absl::StrAppend(&line, " ", info.node, " (", info.op, ")");
  }
  if (instruction.micro_batch >= 0) absl::StrAppend(&line, " mb", instruction.micro_batch);
  if (const int number = NumberOf(instruction); number >= 0) absl::StrAppend(&line, " #", number);
  return line;
}

std::string NameOf(const BufferTable& buffers, BufferIndex buffer) {
  const BufferIndex root = buffers.Root(buffer);
  return absl::StrCat(buffers.is_fixed(root) ? "fixed" : "b", root);
}

void AppendSlots(std::string& text, const std::string& word, const std::vector<SlotIndex>& slots) {
  for (const SlotIndex slot : slots) {
    if (slot != kNoSlot) absl::StrAppend(&text, word, slot);
  }
}

// ": b1 s0 -> b2, releases s0"
std::string OperandsOf(const LoweredInstruction& instruction, const BufferTable& buffers) {
  std::string reads;
  std::string writes;
  std::string releases;
  VisitReads(instruction, [&](BufferIndex b) { absl::StrAppend(&reads, " ", NameOf(buffers, b)); });
  VisitWrites(instruction,
              [&](BufferIndex b) { absl::StrAppend(&writes, " ", NameOf(buffers, b)); });
  if (const auto* const run = instruction.As<lowered::ValueRun>()) {
    for (const ValueOperand& operand : run->operands) AppendSlots(reads, " s", {operand.slot});
    AppendSlots(writes, " s", run->results);
    AppendSlots(releases, " s", run->releases);
  } else if (const auto* const take = instruction.As<lowered::TakeValue>()) {
    AppendSlots(writes, " s", {take->slot});
    AppendSlots(releases, " s", take->releases);
  } else if (const auto* const load = instruction.As<lowered::Load>()) {
    AppendSlots(reads, " s", {load->slot});
    AppendSlots(releases, " s", load->releases);
  } else if (const auto* const leaf = instruction.As<lowered::Leaf>()) {
    for (const int sum : leaf->sums) absl::StrAppend(&writes, " sum", sum);
  } else if (const auto* const ready = instruction.As<lowered::SumReady>()) {
    absl::StrAppend(&reads, " sum", ready->sum);
  }
  std::string text;
  if (!reads.empty() || !writes.empty()) absl::StrAppend(&text, ":", reads);
  if (!writes.empty()) absl::StrAppend(&text, " ->", writes);
  if (!releases.empty()) absl::StrAppend(&text, ", releases", releases);
  return text;
}

void AppendList(std::string& text, std::string_view title,
                const std::vector<LoweredInstruction>& list, const LoweredStep& step,
                bool with_operands) {
  absl::StrAppend(&text, std::string(title), ":\n");
  for (const LoweredInstruction& instruction : list) {
    absl::StrAppend(&text, "  ", LineOf(instruction, step.infos),
                    with_operands ? OperandsOf(instruction, step.buffers) : "", "\n");
  }
}

// Those of the arena that something names.
void AppendBuffers(std::string& text, const LoweredStep& step) {
  std::set<BufferIndex> named;
  const auto add = [&](BufferIndex buffer) { named.insert(step.buffers.Root(buffer)); };
  for (const auto* const list : {&step.compute, &step.communication}) {
    for (const LoweredInstruction& instruction : *list) {
      VisitReads(instruction, add);
      VisitWrites(instruction, add);
    }
  }
  absl::StrAppend(&text, "buffers:\n");
  for (const BufferIndex buffer : named) {
    absl::StrAppend(&text, "  ", NameOf(step.buffers, buffer), " ", step.buffers.bytes(buffer),
                    " bytes");
    if (step.buffers.first(buffer) >= 0) {
      absl::StrAppend(&text, " ", step.buffers.first(buffer), "..", step.buffers.last(buffer));
    }
    absl::StrAppend(&text, "\n");
  }
}

}  // namespace

std::string Describe(const LoweredStep& step) {
  std::string text;
  AppendList(text, "compute", step.compute, step, /*with_operands=*/false);
  if (!step.communication.empty()) {
    AppendList(text, "communication", step.communication, step, /*with_operands=*/false);
  }
  return text;
}

std::string Describe(const LoweringProgram& program) {
  const LoweredStep& step = program.step;
  std::string text;
  AppendList(text, "compute", step.compute, step, /*with_operands=*/true);
  if (!step.communication.empty()) {
    AppendList(text, "communication", step.communication, step, /*with_operands=*/true);
  }
  AppendBuffers(text, step);
  for (size_t i = 0; i < program.sums.size(); ++i) {
    const StepSum& sum = program.sums[i];
    absl::StrAppend(&text, "sum", i, " '", sum.end_input, "' of micro-batches ", sum.first, " to ",
                    sum.last - 1, sum.ordered_tree ? ", as a tree" : "", ": ",
                    NameOf(step.buffers, sum.buffer), "\n");
  }
  for (const VariableUpdate& update : program.updates) {
    absl::StrAppend(&text, "update: ", NameOf(step.buffers, update.value), " -> ",
                    NameOf(step.buffers, update.variable), "\n");
  }
  for (const LoweredReport& report : step.reports) {
    absl::StrAppend(&text, "report '", report.name, "': ",
                    report.slot != kNoSlot ? absl::StrCat("s", report.slot)
                                           : NameOf(step.buffers, report.buffer),
                    "\n");
  }
  return text;
}

std::string DescribeLargestValue(const LoweredStep& step) {
  int64_t largest = 0;
  const InstructionInfo* maker = nullptr;
  for (const LoweredInstruction& instruction : step.compute) {
    if (instruction.info < 0) continue;
    const auto* const run = instruction.As<lowered::KernelRun>();
    VisitWrites(instruction, [&](BufferIndex buffer) {
      const bool is_workspace = run != nullptr && buffer == run->workspace;
      if (is_workspace || step.buffers.bytes(buffer) <= largest) return;
      largest = step.buffers.bytes(buffer);
      maker = &step.infos[instruction.info];
    });
  }
  if (maker == nullptr) return "";
  return absl::StrCat("node '", maker->node, "' (", maker->op, ", ", maker->shapes, ") makes ",
                      largest, " of them");
}

}  // namespace weft
