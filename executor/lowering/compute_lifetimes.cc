#include "executor/lowering/compute_lifetimes.h"

#include <utility>

namespace weft {
namespace {

// From the signal that lets it run to the await that covers it.
void TouchCommunication(LoweredStep& step, int index) {
  const LoweredInstruction& instruction = step.communication[index];
  const int signal = instruction.As<lowered::Collective>()->wait_signals;
  const int end = static_cast<int>(step.compute.size());
  int signalled = 0;
  int awaited = end;
  for (int i = 0; i < end && awaited == end; ++i) {
    if (const auto* const given = step.compute[i].As<lowered::Signal>()) {
      if (given->count == signal) signalled = i;
    } else if (const auto* const wait = step.compute[i].As<lowered::Await>()) {
      if (wait->count > index) awaited = i;
    }
  }
  const auto touch = [&](BufferIndex buffer) {
    step.buffers.Touch(buffer, signalled);
    step.buffers.Touch(buffer, awaited);
  };
  VisitReads(instruction, touch);
  VisitWrites(instruction, touch);
}

}  // namespace

LoweringProgram ComputeLifetimes(LoweringProgram program) {
  LoweredStep& step = program.step;
  step.buffers.ClearLifetimes();
  const int end = static_cast<int>(step.compute.size());
  for (int i = 0; i < end; ++i) {
    if (const auto* const fill = step.compute[i].As<lowered::Fill>();
        fill != nullptr && fill->ahead != kNoBuffer) {
      step.buffers.Touch(fill->ahead, 0);
      step.buffers.Touch(fill->ahead, end + 1);
    }
    const auto touch = [&](BufferIndex buffer) { step.buffers.Touch(buffer, i); };
    VisitReads(std::as_const(step.compute[i]), touch);
    VisitWrites(std::as_const(step.compute[i]), touch);
  }
  for (size_t i = 0; i < step.communication.size(); ++i) {
    TouchCommunication(step, static_cast<int>(i));
  }
  // Variables get their values after the last instruction, then the host reads the reports.
  for (const VariableUpdate& update : program.updates) step.buffers.Touch(update.value, end);
  for (const LoweredReport& report : step.reports) {
    if (report.buffer != kNoBuffer) step.buffers.Touch(report.buffer, end + 1);
  }
  return program;
}

}  // namespace weft
