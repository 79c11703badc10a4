#include "executor/lowering.h"

#include "executor/lowering_state.h"
#include "graph/schedule/action_nodes.h"
#include "platform/status_macros.h"

namespace weft {

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

}  // namespace weft
