// StepModel: what every rank does in a step, and what it takes, as data. Made from partitions
// (partition_model.h) or from coarser estimates (by a search); simulated by simulator.h.
//
//   StepModel model;
//   const int forward = model.AddSegment({StepInstruction::Compute(0.002), ...});
//   StepRoutine routine;
//   routine.actions = {{{Action::Kind::kForward, 0}, forward}, ...};
//   ... model.routines, model.ranks, model.links, model.channels, model.collectives ...
//   WEFT_ASSIGN_OR_RETURN(const Simulation simulation, SimulateStep(model, {}));
#ifndef WEFT_PLACEMENT_SIMULATION_STEP_MODEL_H_
#define WEFT_PLACEMENT_SIMULATION_STEP_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "graph/partition.h"

namespace weft {

// One thing that a rank's compute stream does. All times are in seconds.
struct StepInstruction {
  enum class Kind : uint8_t {
    kCompute,     // takes `seconds`
    kSend,        // on channel `index` of the rank's table; waits for a credit only
    kReceive,     // on channel `index` of the rank's table; waits for its message
    kCollective,  // collective `index` of the rank's table; waits for all members
    kSignal,      // `index` signals have been given in this step: allows jobs that wait for them
    kAwait,       // until the first `index` jobs of the rank's communication stream have ended
  };
  Kind kind = Kind::kCompute;
  int32_t index = -1;
  int32_t name = -1;  // into StepModel::names; -1: none
  double seconds = 0;

  static StepInstruction Compute(double seconds, int32_t name = -1) {
    return {Kind::kCompute, -1, name, seconds};
  }
  static StepInstruction Send(int32_t channel) { return {Kind::kSend, channel, -1, 0}; }
  static StepInstruction Receive(int32_t channel) { return {Kind::kReceive, channel, -1, 0}; }
  static StepInstruction Collective(int32_t collective) {
    return {Kind::kCollective, collective, -1, 0};
  }
  static StepInstruction Signal(int32_t given) { return {Kind::kSignal, given, -1, 0}; }
  static StepInstruction Await(int32_t jobs) { return {Kind::kAwait, jobs, -1, 0}; }
  friend bool operator==(const StepInstruction&, const StepInstruction&) = default;
};

// What one action of a rank runs, in order. Ranks, and micro-batches of a rank, that do the same
// share one: only tables differ.
using StepSegment = std::vector<StepInstruction>;

// One action of a routine: a segment that runs for one micro-batch.
struct StepAction {
  Action action;
  int32_t segment = -1;  // into StepModel::segments
};

// One collective of the communication stream, which runs beside the compute stream. Its jobs run in
// order, one at a time, each when `signals` signals have been given.
struct StepJob {
  int32_t collective = -1;  // into the rank's table
  int32_t signals = 0;
};

// The order of a rank's work in every step; shared by ranks that do the same.
struct StepRoutine {
  std::vector<StepAction> actions;
  std::vector<StepJob> jobs;
};

// One rank: its routine, and its own channels and collectives.
struct StepRank {
  int32_t worker = 0;                // of the cluster
  int32_t stage = 0;                 // its place in the pipeline
  int32_t routine = 0;               // into StepModel::routines
  double slow_down = 1;              // computing takes so many times as long
  double overhead_seconds = 0;       // of each step, before its first action
  std::vector<int32_t> channels;     // into StepModel::channels
  std::vector<int32_t> collectives;  // into StepModel::collectives
};

// What messages travel over, one direction. `lanes` messages go at once at full speed; others queue
// in the order in which they were sent.
struct StepLink {
  std::string name;  // "alpha -> beta"
  double latency_seconds = 0;
  double bytes_per_second = 0;  // 0: no time but the latency
  int32_t lanes = 1;
  // Numbered as the cluster names them first; -1: not said.
  int32_t from_host = -1;
  int32_t to_host = -1;
};

// From one rank to another. A message leaves when it is sent, is on the link for
// bytes / bytes_per_second, and is there a latency later.
struct StepChannel {
  int32_t name = -1;           // into StepModel::names: the value that travels
  int32_t number = -1;         // ChannelId; -1 in models that are not made of partitions
  int32_t from = 0;            // rank
  int32_t to = 0;              // rank
  int32_t link = -1;           // -1: takes no time
  int64_t bytes = 0;           // of a message
  int32_t credits = 1;         // as ScheduleChannel::credits; 0: as many as wanted
  double send_seconds = 0;     // the sender's stream is busy with a message
  double receive_seconds = 0;  // the receiver's, once it is there
  // While a message is on its way, what either end computes takes so much longer (LinkProfile).
  double contention = 0;
};

// A collective of a group of ranks, run any number of times a step: the k-th run of each member
// belongs together. All members leave `seconds` after the last one has come.
struct StepCollective {
  int32_t name = -1;             // into StepModel::names
  std::vector<int32_t> members;  // ranks; each has it in its table
  double seconds = 0;
  // Beside computing, of the time that they overlap: how much longer both take (LinkProfile).
  double contention = 0;
  // What one run sends: (link, bytes) and, by member, bytes. Empty: not counted.
  std::vector<std::pair<int32_t, int64_t>> link_bytes;
  std::vector<int64_t> member_bytes;
};

// A step of all ranks as the simulator runs it. A value; indices refer to its own lists.
struct StepModel {
  std::vector<StepSegment> segments;
  std::vector<StepRoutine> routines;
  std::vector<StepRank> ranks;
  std::vector<StepLink> links;
  std::vector<StepChannel> channels;
  std::vector<StepCollective> collectives;
  std::vector<std::string> names;

  // The segment's index; an equal one is shared. Linear in the segment's length.
  int32_t AddSegment(StepSegment segment);
  // The name's index; an equal one is shared.
  int32_t AddName(const std::string& name);
  // InvalidArgument naming the first index that is out of range, rank that is no end of its channel
  // or no member of its collective, or time that is negative or not finite.
  absl::Status Check() const;

 private:
  std::map<uint64_t, std::vector<int32_t>> segments_of_hash_;
  std::map<std::string, int32_t> name_index_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_STEP_MODEL_H_
