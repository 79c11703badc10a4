// Pipeline schedules as data: lists of actions per stage, with a text form and a printable grid.
// How long they take, and whether they end, is simulated in schedule_simulator.h.
#ifndef WEFT_GRAPH_SCHEDULE_ACTION_LIST_H_
#define WEFT_GRAPH_SCHEDULE_ACTION_LIST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/partition.h"

namespace weft {

// Of one rank of the pipeline. Rank r of P runs the stages r, P + r, 2 P + r, ...: its chunks 0, 1,
// 2, ... With one chunk, rank and stage are the same.
using ActionList = std::vector<Action>;

// "F2", "B0.1" (micro-batch 0, chunk 1), "W3", "Begin", "U".
std::string ActionToString(const Action& action);
// "Begin F0 F1 B0 B1 U"; inverse of each other.
std::string ActionListToString(const ActionList& actions);
absl::StatusOr<ActionList> ParseActionList(const std::string& text);

// True if backward passes come in two parts, B (what other stages wait for) and W (the rest).
bool SplitsBackward(const ActionList& actions);
// 1 + the highest chunk.
int ChunksOf(const ActionList& actions);
// Most micro-batches (times chunks) whose forward has begun and whose backward, W included, has not
// ended. 0 without a backward pass: nothing is kept for one.
int MaxInFlight(const ActionList& actions);
// Of so many micro-batches the rank holds the activations of all of its chunks at once, rounded up;
// at least 1.
int MicroBatchesHeld(const ActionList& actions);

// In all of these `micro_batches` counts the replica's own.

// All forwards, then all backwards in the same order. (Huang et al., GPipe, 2019.)
ActionList GpipeActions(int stages, int stage, int micro_batches);
// Warm-up of stages - stage - 1 forwards, then one forward one backward. (Narayanan et al., 2019.)
ActionList OneForwardOneBackwardActions(int stages, int stage, int micro_batches);
// 1F1B whose stage s runs the W of a micro-batch s backwards later, so that W fills what was the
// bubble at the end. Needs as much memory as the first stage of 1F1B, on every stage. (ZB-H1 of Qi
// et al., Zero Bubble Pipeline Parallelism, 2023.)
ActionList ZeroBubbleActions(int stages, int stage, int micro_batches);
// 1F1B over `chunks` stages per rank, micro-batches in groups of `ranks`. Where the last group is
// not full, its missing micro-batches are left out. (Narayanan et al., Efficient Large-Scale
// Language Model Training, 2021.)
ActionList InterleavedActions(int ranks, int rank, int chunks, int micro_batches);
// Forwards only (evaluation).
ActionList ForwardActions(int ranks, int chunks, int micro_batches);

// InvalidArgument when there is no schedule of this name ("gpipe", "1f1b", "interleaved",
// "zero_bubble"), or when it does not run so many chunks: interleaved has several, others one.
absl::Status CheckScheduleName(const std::string& schedule);
absl::Status CheckSchedule(const std::string& schedule, int chunks);
// By name. With one stage in all, F and B of a micro-batch run together ("F0 B0 F1 B1"), which
// needs the least memory.
absl::StatusOr<ActionList> MakeActions(const std::string& schedule, int ranks, int rank,
                                       int micro_batches, bool training, int chunks = 1);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_ACTION_LIST_H_
