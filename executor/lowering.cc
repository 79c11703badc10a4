#include "executor/lowering.h"

#include "executor/lowering_state.h"
#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<LoweredStep> LowerStep(const Partition& partition,
                                      const ExecutorEnvironment& environment) {
  LoweringState state(partition, environment);
  WEFT_RETURN_IF_ERROR(state.Begin());
  for (const Action& action : partition.actions) {
    switch (action.kind) {
      case Action::Kind::kBegin:
        WEFT_RETURN_IF_ERROR(state.LowerBegin());
        break;
      case Action::Kind::kForward:
        WEFT_RETURN_IF_ERROR(state.LowerMicroBatch(action.micro_batch, Phase::kForward));
        break;
      case Action::Kind::kBackward:
        WEFT_RETURN_IF_ERROR(state.LowerMicroBatch(action.micro_batch, Phase::kBackward));
        break;
      case Action::Kind::kUpdate:
        WEFT_RETURN_IF_ERROR(state.LowerEnd());
        break;
    }
  }
  return state.Finish();
}

}  // namespace weft
