#include "executor/lowering/load_values.h"

#include <utility>
#include <vector>

namespace weft {
namespace {

void InsertLoads(LoweringProgram& program) {
  std::vector<LoweredInstruction> loaded;
  loaded.reserve(program.step.compute.size() + program.loads.size());
  const auto load = [&](BufferIndex buffer) {
    const auto wanted = program.loads.find(buffer);
    if (wanted == program.loads.end()) return;
    loaded.push_back(std::move(wanted->second));
    program.loads.erase(wanted);
  };
  for (LoweredInstruction& instruction : program.step.compute) {
    VisitReads(std::as_const(instruction), load);
    loaded.push_back(std::move(instruction));
  }
  for (const VariableUpdate& update : program.updates) load(update.value);
  for (const LoweredReport& report : program.step.reports) load(report.buffer);
  program.step.compute = std::move(loaded);
  program.loads.clear();  // what nobody reads
}

// By slot: true for constants and reports.
std::vector<bool> KeptSlots(const LoweredStep& step) {
  std::vector<bool> kept;
  for (const Value& initial : step.slots) {
    kept.push_back(initial.kind() != ValueKind::kTensor || initial.tensor().valid());
  }
  for (const LoweredReport& report : step.reports) {
    if (report.slot != kNoSlot) kept[report.slot] = true;
  }
  return kept;
}

void ReleaseSlots(LoweredStep& step) {
  if (step.slots.empty()) return;
  std::vector<bool> kept = KeptSlots(step);
  const auto release = [&kept](SlotIndex slot, std::vector<SlotIndex>& releases) {
    if (slot == kNoSlot || kept[slot]) return;
    kept[slot] = true;
    releases.push_back(slot);
  };
  for (auto instruction = step.compute.rbegin(); instruction != step.compute.rend();
       ++instruction) {
    if (auto* const run = instruction->As<lowered::ValueRun>()) {
      for (const ValueOperand& operand : run->operands) release(operand.slot, run->releases);
      for (const SlotIndex slot : run->results) release(slot, run->releases);
    } else if (auto* const take = instruction->As<lowered::TakeValue>()) {
      release(take->slot, take->releases);
    } else if (auto* const load = instruction->As<lowered::Load>()) {
      release(load->slot, load->releases);
    }
  }
}

}  // namespace

LoweringProgram LoadValues(LoweringProgram program) {
  if (!program.loads.empty()) InsertLoads(program);
  ReleaseSlots(program.step);
  return program;
}

}  // namespace weft
