// JobLoop: checkpoints, evaluations and early ends of one `train`, as its flags ask for them.
#ifndef WEFT_TOOLS_JOBS_JOB_LOOP_H_
#define WEFT_TOOLS_JOBS_JOB_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "distributed/coordinator.h"
#include "nlohmann/json.hpp"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "tools/console/console.h"
#include "tools/flags/loop_flags.h"
#include "tools/jobs/trained_model.h"
#include "training/adaptation/rebalancer.h"
#include "training/checkpoint/checkpoint_store.h"
#include "training/checkpoint/checkpointer.h"
#include "training/checkpoint/flag_record.h"
#include "training/checkpoint/folder_owner.h"
#include "training/checkpoint/state_source.h"
#include "training/job/job.h"
#include "training/job/periodic_evaluation.h"
#include "training/job/trainer.h"
#include "training/recovery/kept_state.h"

namespace weft {

// Goes through the methods in their order, each once; all errors carry their exit code. Borrows
// flags and console. One thread.
class JobLoop {
 public:
  JobLoop(const LoopFlags& flags, Console& console);

  // Looks into the folder of checkpoints and, to resume, opens the newest one that is whole. Makes
  // no folder: the job may yet be refused.
  absl::Status OpenFolder();
  // The epoch of this run as a coordinator (distributed/coordinator_epoch.h): higher than those
  // that its workers have accepted, and than that of whoever has the folder of checkpoints, which
  // is this run's from now on. Before anybody joins.
  uint64_t Claim(const std::vector<WorkerClient*>& clients);
  // JobMembership::job_digest of a job that has a folder of checkpoints, else 0. After CheckSame.
  uint64_t job_digest() const;
  // A run that resumes goes on with what its workers keep of a job whose coordinator was lost,
  // where that is newer than the checkpoint. Says from where the run goes on, and adds to `start`.
  void TakeOver(KeptSearch kept, int workers, JobStart& start);
  // PermissionDenied (IsDeposed) where another run has claimed the folder since.
  absl::Status CheckOwner() const;
  // Makes the folder of a job that has started. An error where no file can be written there: a job
  // that cannot save must not find out after hours. Removes what an earlier run, which does not
  // own the folder any more, had not finished.
  absl::Status MakeFolder();
  // Takes what can change bits, and was left open, from the checkpoint's plan; with --rebalance the
  // shares too, which the job had come to.
  void AdoptPlan(JobSpec& spec) const;
  // Prepares the evaluation within the job.
  absl::Status PrepareEvaluation(const ImportedModel& model, const LossSpec& loss,
                                 const PreparedJob& job, const JobSpec& spec);
  // Compares the job with the checkpoint's: FailedPrecondition listing what differs. `decisions` go
  // into the job's record.
  absl::Status CheckSame(const ImportedModel& model, const PreparedJob& job,
                         const std::vector<ParameterDecision>& decisions, FlagRecord given_flags);
  const PreparedJob* evaluation() const {
    return evaluation_.has_value() ? &*evaluation_ : nullptr;
  }
  // The workers have started: hands them the checkpoint, and is ready for the loop. `before_text`
  // is called before anything is written to the console (it ends a progress line).
  absl::Status Begin(Coordinator& coordinator, const TrainedModel& model, const PreparedJob& job,
                     const LossSpec& loss, std::function<void()> before_text);
  void AddTo(TrainOptions& options);
  // What is said of slow workers goes to the console, and a plan with other shares into the
  // checkpoints. From Begin on.
  RebalancerOptions Rebalancing();
  // Whether workers may join.
  bool may_grow() const { return !flags_.listen().empty(); }
  // How long a job waits for a worker in the place of a lost one.
  absl::Duration loss_wait() const { return flags_.loss_wait(); }
  // The newest whole checkpoint of a later step than `after`, for a job that has lost a worker;
  // null: there is none. What is being written is given up. Null function: the job saves none.
  std::function<absl::StatusOr<std::unique_ptr<StateSource>>(int64_t after)> Checkpoints();
  // Whether a checkpoint is wanted now; asked between steps. Before Begin.
  void set_saves_now(std::function<bool()> saves_now) { saves_now_ = std::move(saves_now); }
  // Is told of each evaluation. Before Begin.
  void set_listener(std::function<void(const Measurement&)> listener) {
    listener_ = std::move(listener);
  }

  // Whether replicas are compared; and when, and what follows.
  bool compares() const { return flags_.compares(); }
  ReplicaCheckOptions Comparing() const { return flags_.Comparing(); }
  // What evaluations measure; none without them.
  std::vector<std::string> evaluated_metrics(const LossSpec& loss) const {
    return flags_.evaluates() ? flags_.Metrics(loss) : std::vector<std::string>();
  }
  // Of what the run resumes from: its loop's state, and the flags of the checkpoint's record. Empty
  // without one.
  std::map<std::string, double> saved_state() const {
    if (kept_.has_value()) return kept_->loop;
    return checkpoint_.has_value() ? checkpoint_->index().loop : std::map<std::string, double>();
  }
  FlagRecord saved_flags() const {
    return checkpoint_.has_value() ? checkpoint_->index().job.flags : FlagRecord();
  }
  // The state after `step` steps was right, and may be wrong later: sets the checkpoints of later
  // steps aside, and saves none any more. What the run can be resumed from, for an error's text.
  std::string Distrust(int64_t step);
  // Steps that were done before, and are reported by another run.
  int64_t first_step() const;
  // What came of it, a line each; `step_seconds` is what a step takes.
  void Report(double step_seconds, Console& console) const;
  // The same for programs: "parameters" (which train, and why others do not), "checkpoints" and
  // "evaluation", where there are any.
  void AddToReport(double step_seconds, nlohmann::ordered_json& report) const;

 private:
  absl::Status Measured(Coordinator& coordinator, const Measurement& measured);
  void Note(const std::string& text);
  int64_t checkpoint_step() const {
    return checkpoint_.has_value() ? checkpoint_->index().step : 0;
  }
  // Removes what is half written or half removed.
  void CleanUp();
  // The folder is this run's; a warning where that cannot be written down.
  void ClaimFolder();

  const LoopFlags& flags_;
  Console& console_;
  std::optional<CheckpointStore> store_;
  std::optional<FolderOwner> owner_;  // of the store
  uint64_t epoch_ = 0;
  std::optional<Checkpoint> checkpoint_;
  std::optional<KeptState> kept_;  // the run goes on with that, and not with the checkpoint
  CheckpointJob job_;
  std::optional<PreparedJob> evaluation_;
  std::optional<Checkpointer> checkpointer_;
  std::optional<PeriodicEvaluation> periodic_;
  std::function<void()> before_text_;
  std::function<bool()> saves_now_;
  std::function<void(const Measurement&)> listener_;
  const TrainedModel* model_ = nullptr;  // borrowed from Begin on
  const PreparedJob* prepared_ = nullptr;
  std::map<std::string, double> last_metrics_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_JOB_LOOP_H_
