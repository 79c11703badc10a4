// Pipeline schedules as data: lists of actions per stage, with a text form and a printable grid.
#ifndef WEFT_GRAPH_SCHEDULE_ACTION_LIST_H_
#define WEFT_GRAPH_SCHEDULE_ACTION_LIST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/partition.h"

namespace weft {

using ActionList = std::vector<Action>;  // of one stage

// "Begin F0 F1 B0 B1 U"; inverse of each other.
std::string ActionListToString(const ActionList& actions);
absl::StatusOr<ActionList> ParseActionList(const std::string& text);

// All forwards, then all backwards in the same order. `micro_batches` counts the replica's own.
// (Huang et al., GPipe, 2019.)
ActionList GpipeActions(int stages, int stage, int micro_batches);
// Warm-up of stages - stage - 1 forwards, then one forward one backward. (Narayanan et al., 2019.)
ActionList OneForwardOneBackwardActions(int stages, int stage, int micro_batches);
// Forwards only (evaluation).
ActionList ForwardActions(int micro_batches);
// By name: "gpipe", "1f1b". With one stage both run F and B of a micro-batch together ("F0 B0 F1
// B1"), which needs the least memory.
absl::StatusOr<ActionList> MakeActions(const std::string& schedule, int stages, int stage,
                                       int micro_batches, bool training);

// Plays the lists of all stages in virtual time with unit costs; InvalidArgument naming the action
// that never becomes ready (a deadlock), one that is missing or one that comes twice.
absl::Status ValidateActions(const std::vector<ActionList>& stages, int micro_batches);
// A row per stage, a column per time unit.
std::string ActionGrid(const std::vector<ActionList>& stages, int micro_batches);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_ACTION_LIST_H_
