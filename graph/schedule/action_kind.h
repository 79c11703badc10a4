// The kinds of actions, as the sources of this folder name them.
#ifndef WEFT_GRAPH_SCHEDULE_ACTION_KIND_H_
#define WEFT_GRAPH_SCHEDULE_ACTION_KIND_H_

#include "graph/partition.h"

namespace weft {

using ActionKind = Action::Kind;

// Whether the action is of one micro-batch.
inline bool IsMicro(const Action& action) {
  return action.kind != ActionKind::kBegin && action.kind != ActionKind::kUpdate;
}

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_ACTION_KIND_H_
