#include "executor/lowering/lowering.h"

#include "absl/strings/str_cat.h"
#include "executor/lowering/lowering_state.h"
#include "graph/schedule/action_nodes.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

const char* OpCodeName(OpCode code) {
  constexpr const char* kNames[] = {"kernel",     "fill",  "send",   "wait_sent", "receive",
                                    "collective", "add",   "copy",   "pack",      "guard",
                                    "signal",     "await", "values", "take",      "load"};
  return kNames[static_cast<int>(code)];
}

}  // namespace

absl::StatusOr<LoweredStep> LowerStep(const Partition& partition,
                                      const ExecutorEnvironment& environment) {
  LoweringState state(partition, environment);
  WEFT_RETURN_IF_ERROR(state.Begin());
  WEFT_ASSIGN_OR_RETURN(const ActionNodes nodes, ActionNodes::Create(partition));
  for (const Action& action : partition.actions) {
    switch (action.kind) {
      case Action::Kind::kBegin:
        WEFT_RETURN_IF_ERROR(state.LowerBegin());
        break;
      case Action::Kind::kForward:
      case Action::Kind::kBackward:
      case Action::Kind::kWeightGradient:
        WEFT_RETURN_IF_ERROR(state.LowerMicroBatch(action, nodes.Of(action)));
        break;
      case Action::Kind::kUpdate:
        WEFT_RETURN_IF_ERROR(state.LowerEnd());
        break;
    }
  }
  return state.Finish();
}

std::string Describe(const LoweredStep& step) {
  std::string text;
  const auto append = [&](const char* list, const std::vector<LoweredInstruction>& instructions) {
    absl::StrAppend(&text, list, ":\n");
    for (const LoweredInstruction& instruction : instructions) {
      absl::StrAppend(&text, "  ", OpCodeName(instruction.code));
      if (instruction.info >= 0) {
        absl::StrAppend(&text, " ", step.infos[instruction.info].node, " (",
                        step.infos[instruction.info].op, ")");
      }
      if (instruction.micro_batch >= 0) absl::StrAppend(&text, " mb", instruction.micro_batch);
      if (instruction.handle >= 0) absl::StrAppend(&text, " #", instruction.handle);
      absl::StrAppend(&text, "\n");
    }
  };
  append("compute", step.compute);
  if (!step.communication.empty()) append("communication", step.communication);
  return text;
}

std::string DescribeLargestValue(const LoweredStep& step) {
  int64_t largest = 0;
  const InstructionInfo* maker = nullptr;
  for (const LoweredInstruction& lowered : step.compute) {
    if (lowered.info < 0) continue;
    for (const BufferIndex buffer : lowered.outputs) {
      if (step.buffers.bytes(buffer) <= largest) continue;
      largest = step.buffers.bytes(buffer);
      maker = &step.infos[lowered.info];
    }
  }
  if (maker == nullptr) return "";
  return absl::StrCat("node '", maker->node, "' (", maker->op, ", ", maker->shapes, ") makes ",
                      largest, " of them");
}

}  // namespace weft
