// What a simulation in virtual time leaves behind: times of ranks, spans, events. Internal to
// simulation/.
#ifndef WEFT_PLACEMENT_SIMULATION_SIMULATION_RECORD_H_
#define WEFT_PLACEMENT_SIMULATION_SIMULATION_RECORD_H_

#include <string>
#include <utility>
#include <vector>

#include "placement/simulation/simulation.h"

namespace weft {

// Collects what a simulation reports while it runs.
class SimulationRecord {
 public:
  SimulationRecord(const StepModel& model, const SimulationOptions& options);

  // Of a rank's compute stream.
  void AddCompute(int32_t rank, double seconds) { ranks_[rank].now.compute += seconds; }
  void AddCommunication(int32_t rank, double seconds) { ranks_[rank].now.communication += seconds; }

  bool wants_actions() const { return detail_ != TimelineDetail::kNone; }
  bool wants_instructions() const { return detail_ == TimelineDetail::kInstructions; }
  bool wants_events() const { return wants_events_; }
  // Spans without length are left out.
  void AddSpan(TimelineSpan span);
  void AddEvent(const SimulatedEvent& event) { result_.events.push_back(event); }

  void EndStep(int32_t rank, int step, double time);
  // A step that ended later has not ended.
  void ForgetStepsAfter(double time);
  Simulation Finish() &&;

 private:
  struct OfRank {
    RankTime now;    // sums
    RankTime ended;  // of the steps that it has ended
    int steps = 0;
    double end = 0;
  };
  void FinishRanks();

  const StepModel& model_;
  const TimelineDetail detail_;
  const bool wants_events_;
  std::vector<OfRank> ranks_;
  std::vector<int> ended_;  // by step: ranks that have ended it
  std::vector<double> step_ends_;
  Simulation result_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_SIMULATION_RECORD_H_
