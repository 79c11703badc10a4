// What a simulation is asked for and what it gives, as data.
#ifndef WEFT_PLACEMENT_SIMULATION_SIMULATION_H_
#define WEFT_PLACEMENT_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "placement/simulation/step_model.h"

namespace weft {

// From a time or a step of a rank on, something is slower, or a rank stops.
struct ScriptedChange {
  enum class Kind : uint8_t {
    kRankSlower,  // computing takes `factor` times its usual time from now on
    kLinkSlower,  // likewise messages, and the collectives that use the link
    kRankStops,   // it does nothing any more
  };
  Kind kind = Kind::kRankSlower;
  int32_t index = 0;      // rank or link
  double factor = 1;      // > 0; of the usual time, not of what it was before the change
  double at_seconds = 0;  // of virtual time; used where `at_step` < 0
  int32_t at_step = -1;   // when the rank begins this step; for a link: when the first rank does
};

// How much of a simulation is recorded for the timeline.
enum class TimelineDetail : uint8_t {
  kNone,
  kActions,       // a span per action, and per collective of the communication streams
  kInstructions,  // and one per instruction and wait
};

// The inputs of SimulateStep besides the model.
struct SimulationOptions {
  int steps = 1;
  // The longest that a stream may wait for a peer before the job ends; 0: for ever.
  double stall_timeout_seconds = 0;
  std::vector<ScriptedChange> script;
  TimelineDetail timeline = TimelineDetail::kNone;
  bool record_events = false;
};

// Of a rank's compute stream in one step, in the mean over the steps. They add up to the step.
struct RankTime {
  double compute = 0;        // with what the script made slower
  double communication = 0;  // handling and waiting for messages and collectives under way
  double bubble = 0;         // waiting for ranks that have not come, or for credits; overhead
};

// The two streams of a rank.
enum class StreamKind : uint8_t { kCompute, kCommunication };

// One bar of the timeline, in seconds of virtual time.
struct TimelineSpan {
  int32_t rank = 0;
  StreamKind stream = StreamKind::kCompute;
  int32_t step = 0;
  int32_t micro_batch = -1;  // -1: once per step
  std::string name;          // "F2", "all-reduce 'bucket0'", "wait for 'h'"
  double start = 0;
  double end = 0;
};

// An instruction of a stream has begun (kind, name and index as in StepInstruction; jobs of the
// communication stream are collectives), in the order in which the loop came to them.
struct SimulatedEvent {
  double time = 0;
  int32_t rank = 0;
  StreamKind stream = StreamKind::kCompute;
  int32_t step = 0;
  StepInstruction::Kind kind = StepInstruction::Kind::kCompute;
  int32_t index = -1;        // into StepModel::channels or collectives; else as the instruction's
  int32_t name = -1;         // into StepModel::names
  int32_t micro_batch = -1;  // -1: once per step
  friend bool operator==(const SimulatedEvent&, const SimulatedEvent&) = default;
};

// One rank waits, since `since`.
struct SimulatedWait {
  int32_t rank = 0;
  StreamKind stream = StreamKind::kCompute;
  int32_t step = 0;
  int32_t micro_batch = -1;
  std::string what;               // "tensor 'h'", "a credit to send tensor 'h'", "collective 'b0'"
  std::vector<int32_t> on_ranks;  // who has not come
  double since = 0;
};

// A wait was longer than the stall timeout, or could never end since a rank has stopped: the job
// ends as the runtime would end it.
struct SimulatedStall {
  double at_seconds = 0;             // when the first wait expires
  SimulatedWait first;               // the one that does
  std::vector<SimulatedWait> waits;  // all at that time, by rank
  std::vector<int32_t> stopped;      // ranks that the script has stopped
  // "rank 1 waited 60s for tensor 'h' from rank 0 (step 3, micro-batch 2); rank 0 has stopped"
  std::string text;
};

// The result of SimulateStep. Times are in seconds.
struct Simulation {
  // Of one step: of the only one, else from the end of the first to the end of the last in the
  // mean. A step ends when its last rank has ended it.
  double step_seconds = 0;
  std::vector<double> step_ends;  // of the steps that ended
  std::vector<RankTime> ranks;
  std::vector<double> stage_utilisation;  // by pipeline place: share of compute, mean of its ranks
  std::vector<int64_t> link_bytes;        // by link, per step
  std::vector<int64_t> sent_bytes;        // by rank, per step
  std::optional<SimulatedStall> stall;    // the steps before it are in all other values
  std::vector<TimelineSpan> timeline;     // in the order of their ends
  std::vector<SimulatedEvent> events;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_SIMULATION_H_
