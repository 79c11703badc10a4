// The discrete-event loop of SimulateStep. Internal to simulation/.
#ifndef WEFT_PLACEMENT_SIMULATION_STEP_LOOP_H_
#define WEFT_PLACEMENT_SIMULATION_STEP_LOOP_H_

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "placement/simulation/event_queue.h"
#include "placement/simulation/simulation.h"
#include "placement/simulation/simulation_record.h"
#include "placement/simulation/speed_over_time.h"

namespace weft {

// One simulation of a model. Everything that ends a wait goes through the queue, so that what
// happens at one time happens in the order in which it was caused.
class StepLoop {
 public:
  // REQUIRES model.Check() and a script whose indices are in range.
  StepLoop(const StepModel& model, const SimulationOptions& options);
  absl::StatusOr<Simulation> Run() &&;

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // What a stream waits for that is not there yet.
  enum class Wait : uint8_t { kNothing, kMessage, kCredit, kCollective, kJobs };
  struct Waiting {
    Wait what = Wait::kNothing;
    int32_t on = -1;  // channel, collective (of the model), number of jobs
    double since = 0;
  };

  struct RankState {
    // Compute stream.
    int32_t step = 0;
    int32_t action = 0;
    int32_t instruction = 0;
    double action_begin = 0;
    double instruction_begin = 0;
    double jobs_seconds_before = 0;  // kAwait: what JobSeconds was when it began
    Waiting waiting;
    bool ended = false;
    // Communication stream.
    int32_t signals = 0;
    int32_t jobs_begun = 0;
    int32_t jobs_done = 0;
    Waiting job_waiting;      // for the collective of the job that has begun
    double jobs_seconds = 0;  // of all jobs until now, with all members there
    // What computing and the collective beside it take longer because they share the cores.
    double computes_until = 0;  // the instruction that began last
    double collective_until = 0;
    double computing_owed = 0;  // of the instruction under way
    // The same for messages from and to it that are on their way.
    double messages_until = 0;
    double messages_contention = 0;
    double messages_owed = 0;
    double collective_owed = 0;  // of the collective under way
    double stops = kNever;
    SpeedOverTime speed;
  };

  struct Message {
    double sent = 0;
    double arrival = 0;
  };
  struct ChannelState {
    int32_t in_flight = 0;  // sent and not taken
    bool sender_waits = false;
    bool receiver_waits = false;    // and no message is on its way
    std::vector<Message> messages;  // on their way; those before `first` are taken
    size_t first = 0;
  };
  struct CollectiveState {
    int32_t arrived = 0;
    double begun = 0;  // when the last member came
  };
  struct LinkState {
    std::vector<double> free;  // by lane
    SpeedOverTime speed;
  };

  void ApplyTimedScript();
  void ApplyStepScript(int32_t rank);
  void BeginStep(int32_t rank);
  void Handle(const PendingEvent& event);
  bool HasStopped(int32_t rank) const { return now_ >= ranks_[rank].stops; }

  // Runs instructions until one takes time or waits.
  void Advance(int32_t rank);
  // The current instruction is over.
  void EndInstruction(int32_t rank);
  void EndAction(int32_t rank);
  // Once the jobs that it began have ended.
  void EndStep(int32_t rank);
  // True if it is over at once.
  bool Begin(int32_t rank, const StepInstruction& instruction);
  bool BeginCompute(int32_t rank, const StepInstruction& instruction);
  bool BeginSend(int32_t rank, int32_t channel);
  bool SendNow(int32_t rank, int32_t channel);
  void EnterLink(int32_t channel);
  bool BeginReceive(int32_t rank, int32_t channel);
  // True if receiving takes no time.
  bool Take(int32_t rank, int32_t channel);
  bool Await(int32_t rank, int32_t jobs);
  void BeginJobs(int32_t rank);
  void EndJob(int32_t rank);

  // Two things that run at once on a rank for so long, the second one a collective.
  void Contend(int32_t rank, int32_t collective, double seconds);
  // A message that is on its way so long takes from what `rank` computes.
  void ContendWithMessage(int32_t rank, double contention, double until);
  // True while the collective has to run on for what it owes.
  bool RunsOn(int32_t collective);
  void Join(int32_t collective);
  double CollectiveSeconds(int32_t collective) const;
  void EndCollective(int32_t collective);
  void LeaveCollective(int32_t member, StreamKind stream, int32_t collective);
  // The stream of a member that has come.
  StreamKind StreamIn(int32_t member, int32_t collective) const;
  bool AllHaveCome(int32_t collective) const {
    return collectives_[collective].arrived ==
           static_cast<int32_t>(model_.collectives[collective].members.size());
  }

  void StartWaiting(int32_t rank, Wait what, int32_t on) {
    ranks_[rank].waiting = {what, on, now_};
  }
  // A wait for a peer that began then has ended now; remembers the first one that took too long.
  void CheckWait(int32_t rank, StreamKind stream, const Waiting& waiting);
  int32_t AllowedJobs(int32_t rank) const;
  double JobSeconds(int32_t rank) const;
  const StepRoutine& RoutineOf(int32_t rank) const {
    return model_.routines[model_.ranks[rank].routine];
  }
  const Action& ActionOf(int32_t rank) const {
    return RoutineOf(rank).actions[ranks_[rank].action].action;
  }
  const StepInstruction& InstructionOf(int32_t rank) const {
    const RankState& state = ranks_[rank];
    const StepAction& action = RoutineOf(rank).actions[state.action];
    return model_.segments[action.segment][state.instruction];
  }
  int32_t MicroBatchOf(int32_t rank) const;

  void RecordEvent(int32_t rank, StreamKind stream, StepInstruction::Kind kind, int32_t index,
                   int32_t name);
  void RecordSpan(int32_t rank, StreamKind stream, std::string name, double start);
  std::string InstructionText(int32_t rank, const StepInstruction& instruction) const;

  // In stall.cc.
  std::string NameOf(const char* kind, int32_t name, int32_t index) const;
  SimulatedWait Describe(int32_t rank, StreamKind stream, const Waiting& waiting) const;
  std::vector<int32_t> MissingMembers(int32_t rank, int32_t collective) const;
  std::vector<SimulatedWait> AllWaits() const;
  std::vector<int32_t> StoppedRanks() const;
  // What became of who was waited for: "; rank 0 has stopped".
  std::string CauseText(const SimulatedWait& wait, const std::vector<SimulatedWait>& waits) const;
  SimulatedStall MakeStall() const;
  absl::Status Deadlock() const;

  const StepModel& model_;
  const SimulationOptions& options_;
  SimulationRecord record_;
  EventQueue queue_;
  double now_ = 0;
  std::vector<RankState> ranks_;
  std::vector<ChannelState> channels_;
  std::vector<CollectiveState> collectives_;
  std::vector<LinkState> links_;
  int32_t link_step_ = -1;  // the latest step that any rank has begun
  size_t ended_ = 0;        // ranks
  // A wait that ended after the stall timeout.
  std::optional<SimulatedWait> expired_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_STEP_LOOP_H_
