// The loop: runs a prepared job on started workers.
#ifndef WEFT_TRAINING_JOB_TRAINER_H_
#define WEFT_TRAINING_JOB_TRAINER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "distributed/settle_step.h"
#include "platform/clock.h"
#include "training/checkpoint/checkpointer.h"
#include "training/job/job.h"
#include "training/scaling/noise_scale.h"

namespace weft {

// What happens between steps, but for checkpoints. Called by the loop's thread while no step runs.
class LoopHook {
 public:
  virtual ~LoopHook() = default;
  // The first number of steps after `step` at which it wants to be called.
  virtual int64_t NextCall(int64_t step) const = 0;
  // `step` steps are done. Why the run shall end here, or "".
  virtual absl::StatusOr<std::string> Call(Coordinator& coordinator, int64_t step) = 0;
  // The run ends with `step` steps done; what is saved and read then comes afterwards.
  virtual absl::Status AtEnd(Coordinator&, int64_t) { return absl::OkStatus(); }
  // What it must know again in a run that is resumed here.
  virtual void SaveState(std::map<std::string, double>&) const {}
  // A stretch of steps is about to begin: what was told of those before must not be lost when this
  // process is.
  virtual void BeforeStretch() {}
  // Whether steps change that, not its calls alone. Stretches then end where a checkpoint is due.
  virtual bool changes_in_steps() const { return false; }
};

// Watches what steps take on the ranks, and may have them run by other programs.
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  // What a step has taken on a rank: each rank's in order, from several threads, one at a time and
  // not while progress is told. Those of rank 0 have values.
  virtual void Observe(int rank, const StepReport& report) = 0;
  // Called by the loop's thread while no step runs; may add programs to the workers. The kind of
  // those that run from here on, with `step` steps done: "train" for programs named train/SHAPE.
  virtual absl::StatusOr<std::string> ChooseProgram(Coordinator& coordinator, int64_t step) = 0;
  // The job goes on with other workers, under the plan that it has now: what was seen of ranks is
  // of others, and programs that were added are gone.
  virtual void MembersChanged() {}
};

// Where a job stands that goes on after a loss.
struct WentOn {
  SettledStep settled;
  // Not as `settled` says, but after so many steps of the job, at which somebody still had all of
  // the state: at most as many as were done. Steps after it are done again.
  std::optional<int64_t> back_to = std::nullopt;
};

// Has a job go on that loses a worker, and changes its members between steps. Called by the loop's
// thread while no step runs.
class LossHandler {
 public:
  virtual ~LossHandler() = default;
  // A call has ended with `loss`: RunSteps, or one after it. `before`: steps of the job that were
  // done before the newest RunSteps; `reported`: steps of that whose reports have come. On success
  // the coordinator's workers are those that are left, with programs of the job's names, and their
  // state is that after the steps that are returned. An error: the run ends with it; `loss` itself
  // where nobody is lost.
  virtual absl::StatusOr<WentOn> GoOn(Coordinator& coordinator, const absl::Status& loss,
                                      int64_t before, int64_t reported) = 0;
  // Whether members are to change now: a worker wants to leave, or has come.
  virtual bool wants_change(const Coordinator& coordinator) { return coordinator.has_leaving(); }
  // Members change, after `step` steps; then as after GoOn. False: the job cannot do without a
  // worker that leaves, and nothing has changed: the run ends here, as if it had been stopped.
  virtual absl::StatusOr<bool> ChangeMembers(Coordinator&, int64_t) { return false; }
};

// How long a job trains, and who takes part between steps. Pointers are borrowed.
struct TrainOptions {
  int64_t steps = 0;  // at which the run ends, those before a resume included
  // Run the first step with the program that reports gradients (PrepareTraining was asked for it).
  bool report_gradients = false;
  int64_t first_step = 0;  // steps that a resumed run has done
  // Reports of the steps from `first_step` on that the workers have done already, for a coordinator
  // that was lost (FindKeptState): they are taken as if this run had run them.
  std::vector<StepReport> kept_reports = {};
  bool check_numerics = false;  // look at every node of every step
  // Measure the noise of the gradient in every so many steps, in those whose number (from 1) it
  // divides; 0 = never (PrepareTraining was asked for it). Steps of other programs than the job's
  // own, whose micro-batches have moved, are not measured.
  int64_t noise_every = 0;
  // Time every node in so many steps, soon after the first (StatisticsRequest).
  int64_t timed_steps = 0;
  // Borrowed; null: no checkpoints. The job was started with JobSpec::checkpoints.
  Checkpointer* checkpointer = nullptr;
  std::vector<LoopHook*> hooks = {};  // borrowed
  StepWatch* watch = nullptr;         // borrowed; null: nobody watches
  // Borrowed; null: a run that loses a worker ends, and one that a worker wants to leave stops.
  LossHandler* losses = nullptr;
  // Asked between stretches of half a second, or of a step that takes longer; true ends the run.
  std::function<bool()> stop = nullptr;
  Clock* clock = nullptr;  // null: the machine's
};

// The key under which the note of a stretch (StepRange::note) has the steps of the job that were
// done before it. Beside it lie the hooks' states (LoopHook::SaveState).
inline constexpr char kJobStepNote[] = "job/step";

// One finished step. Times are in seconds, the loss is the mean over the global batch.
struct TrainProgress {
  int64_t step = 0;     // 0-based, just done
  std::string program;  // that it ran, on all workers
  std::string update;   // of several in turn (PreparedJob::updates): whose step it was
  double loss = 0;      // of its batch, before its update
  int64_t samples = 0;  // of its batch
  int64_t length = 0;   // that its padded inputs had, where they have several
  double seconds = 0;
  double input_seconds = 0;
  double learning_rate = 0;   // that the step has used, the schedule counted
  double loss_scale = 0;      // that the step has used; 0 = the job has none
  int64_t skipped_steps = 0;  // so far, since the job began
  // Of a step that has measured the noise of its gradient, where that could be told.
  std::optional<NoiseMeasurement> noise = std::nullopt;
};

// The state at the end of a run. Tensors are on the host, with global shapes.
struct TrainResult {
  std::map<std::string, Tensor> parameters;  // trained values by name, global
  // Averages of the trained values, where the job keeps them (TrainingSpec::average_decay), by the
  // same names; what has none (running statistics) is as it is. Empty: it keeps none.
  std::map<std::string, Tensor> averages;
  std::map<std::string, Tensor> gradients;  // of the first step, by parameter, when asked for
  double last_loss = 0;
  std::map<std::string, double> last_losses;  // by update, of jobs with several
  double loss_scale = 0;                      // of the last step; 0 = the job has none
  int64_t skipped_steps = 0;          // since the job began, since their gradients overflowed
  std::vector<ProcessMemory> memory;  // of the workers, by rank, after the last step
  int64_t steps = 0;                  // that are done
  bool stopped = false;               // by TrainOptions::stop, or because a worker leaves
  std::string end;                    // why a hook ended the run; "" = none did
};

// `progress` is called after each step, from another thread, in order. A loss that is not finite
// ends the run with OutOfRange that names the first node that made a NaN; so does a variable that
// is not finite, though the loss does not see it (executor/variables/finite_watch.h). At the end of
// the run, also an early one, the state is checkpointed.
absl::StatusOr<TrainResult> Train(Coordinator& coordinator, const PreparedJob& job,
                                  const TrainOptions& options,
                                  const std::function<void(const TrainProgress&)>& progress);

// Trained values by name, global: the job's variables that are updated, but for optimizer state.
// OutOfRange, naming the first, where one is an infinity or a NaN: such a state is not kept.
absl::StatusOr<std::map<std::string, Tensor>> ReadTrained(Coordinator& coordinator,
                                                          const PreparedJob& job);
// TrainResult::averages; OutOfRange likewise.
absl::StatusOr<std::map<std::string, Tensor>> ReadAverages(Coordinator& coordinator,
                                                           const PreparedJob& job);

// Metrics over one pass of the data.
absl::StatusOr<std::map<std::string, double>> Evaluate(
    Coordinator& coordinator, const PreparedJob& job,
    const std::function<void(const TrainProgress&)>& progress);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_TRAINER_H_
