// Simulates the action lists of all ranks of a pipeline in virtual time. A pure function: what it
// says of a plan is what a run with such costs would do.
#ifndef WEFT_GRAPH_SCHEDULE_SCHEDULE_SIMULATOR_H_
#define WEFT_GRAPH_SCHEDULE_SCHEDULE_SIMULATOR_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/schedule/action_list.h"

namespace weft {

// What the actions of one stage take, in any unit of time.
struct StageDurations {
  double begin = 0;
  double forward = 1;
  double backward = 1;         // the part that other stages wait for
  double weight_gradient = 1;  // the rest: a W of its own, or part of B where the list has no W
  double update = 0;
};

// Messages from the end of an action of one stage to the beginning of an action of another, one per
// micro-batch. Stages count through all chunks: stage = chunk * ranks + rank.
struct ScheduleChannel {
  std::string name;  // for errors: the value that travels
  int from = 0;
  Action::Kind from_kind = Action::Kind::kForward;
  int to = 0;
  Action::Kind to_kind = Action::Kind::kForward;
  // Messages that may be sent and not yet taken; a rank whose message finds none left waits with
  // it, and starts nothing else. 0 = those of ScheduleOptions.
  int credits = 0;
};

// What SimulateSchedule assumes of stages and messages. Times in any one unit.
struct ScheduleOptions {
  int micro_batches = 0;
  std::vector<StageDurations> costs;  // by stage; empty = the defaults
  double latency = 0;                 // of every message
  int credits = 0;                    // of every channel that says none; 0 = as many as wanted
  // Unset: each stage sends forward to the next one and backward to the one before.
  std::optional<std::vector<ScheduleChannel>> channels;
};

// When an action ran, in the unit of the costs.
struct SimulatedAction {
  Action action;
  double start = 0;
  double end = 0;
};

// The result of SimulateSchedule.
struct ScheduleSimulation {
  double makespan = 0;  // the latest end
  // By rank of the pipeline:
  std::vector<double> busy;
  std::vector<double> bubble_share;  // 1 - busy / makespan
  std::vector<int> max_in_flight;    // MaxInFlight
  std::vector<std::vector<SimulatedAction>> actions;

  // Of all ranks together.
  double BubbleShare() const;
};

// InvalidArgument for a deadlock. It names the stage, the action with its micro-batch, and the
// channel that has no credit left or brings no message.
absl::StatusOr<ScheduleSimulation> SimulateSchedule(const std::vector<ActionList>& ranks,
                                                    const ScheduleOptions& options);

// InvalidArgument naming the action that is missing or comes twice, or a deadlock.
absl::Status ValidateActions(const std::vector<ActionList>& ranks, const ScheduleOptions& options);
absl::Status ValidateActions(const std::vector<ActionList>& ranks, int micro_batches);

// A row per stage, a column per time unit, each action taking one.
std::string ActionGrid(const std::vector<ActionList>& ranks, int micro_batches);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_SCHEDULE_SIMULATOR_H_
