// TrainingRun: the steps of one `train`, and who listens to them.
#ifndef WEFT_TOOLS_JOBS_TRAINING_RUN_H_
#define WEFT_TOOLS_JOBS_TRAINING_RUN_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "distributed/coordinator.h"
#include "distributed/worker_source.h"
#include "placement/cost/run_history.h"
#include "platform/clock.h"
#include "tools/console/console.h"
#include "tools/jobs/job_loop.h"
#include "tools/jobs/training_curves.h"
#include "tools/jobs/training_job.h"
#include "tools/reports/progress_line.h"
#include "tools/reports/training_report.h"
#include "training/adaptation/rebalancer.h"
#include "training/job/prediction_record.h"
#include "training/job/traffic_comparison.h"
#include "training/job/trainer.h"
#include "training/recovery/job_recovery.h"
#include "training/recovery/replica_check.h"
#include "training/scaling/noise_scale.h"

namespace weft {

// Who else takes part in a run; any may be null. `step` is called from other threads, one at a
// time, the others while no step runs. The hook is borrowed, and called after the evaluation of its
// step.
struct RunListener {
  std::function<void(const TrainProgress&)> step = nullptr;
  std::function<void(const Measurement&)> evaluation = nullptr;
  LoopHook* hook = nullptr;
  // Is told of workers that are lost, before the job goes on without them, and of those that have
  // left on purpose.
  std::function<void(const std::vector<WorkerClient*>&)> lost = nullptr;
  std::function<void(const std::vector<WorkerClient*>&)> left = nullptr;
  // Where workers in the place of lost ones come from.
  WorkerSource* source = nullptr;
  // What is known of the process of one that is lost (WorkerGroup::Explain).
  std::function<absl::Status(const absl::Status&)> explain = nullptr;
};

// Run once, then ask. Borrows everything; the job's programs grow where micro-batches move. One
// thread.
class TrainingRun {
 public:
  TrainingRun(TrainingJob& job, JobLoop& loop, TrainingCurves& curves, Console& console,
              Clock& clock);

  // Before Run.
  void set_listener(RunListener listener) { listener_ = std::move(listener); }

  // Trains to the job's last step on workers that have it, or until `stop` says so; shows progress
  // on the console and closes the curves. Errors of workers are theirs, those of files carry kDisk.
  absl::Status Run(Coordinator& coordinator, const std::function<bool()>& stop);

  // Whether its steps have ended and trained values are here: also after an error of what comes
  // then, such as a curve's file on a full disk. Nobody should lose the model to that.
  bool has_result() const { return has_result_; }
  const TrainResult& result() const { return result_; }
  // The following after a Run that was OK.
  // What it has done; names no files.
  TrainingOutcome Outcome() const;
  // "input  stalled the steps for 0.3 % of their time".
  std::string StallText() const;
  // The mean over all steps.
  double step_seconds() const;
  // Whether micro-batches have moved: then no prediction was made of the run.
  bool alternates() const { return !job_.job.updates.empty(); }
  bool has_moved() const { return moves_ > 0; }
  // Whether workers were lost, have left or have come: then no prediction was made of the run.
  bool members_changed() const { return members_changed_; }
  // The run against its prediction; `model` is its name in the history.
  absl::StatusOr<RunHistoryEntry> Compare(Coordinator& coordinator, const std::string& model) const;

 private:
  // What has the job go on without a lost worker.
  JobRecoveryOptions Recovering(const std::function<bool()>& stop);
  // What compares replicas; `recovery` goes on without who has a lasting fault.
  ReplicaCheckOptions Comparing(JobRecovery& recovery);
  // Keeps the noise's average in checkpoints.
  class NoiseState;
  // Has the curves on the disk before steps begin.
  class CurvesOnDisk;
  void Take(const TrainProgress& done);
  void TakeNoise(const TrainProgress& done);
  double stalled_part() const { return seconds_ > 0 ? input_seconds_ / seconds_ : 0; }
  // What each rank has sent in training; nothing where there is one alone.
  absl::StatusOr<std::vector<RankTraffic>> Traffic(Coordinator& coordinator) const;

  TrainingJob& job_;
  const TrainedModel model_;
  JobLoop& loop_;
  TrainingCurves& curves_;
  Clock& clock_;
  RunListener listener_;
  TrainOptions options_;
  ProgressLine progress_;
  StepTimes times_;
  double seconds_ = 0;        // of all steps
  double input_seconds_ = 0;  // of these: worker 0 waited for data
  TrainResult result_;
  bool has_result_ = false;
  std::vector<RankTraffic> traffic_;
  std::vector<WorkerMemory> needed_;
  CardUse cards_;
  int moves_ = 0;
  bool members_changed_ = false;
  std::vector<RecoveryRecord> records_;
  ReplicaCheckSummary replicas_;
  NoiseAverage noise_;
  std::vector<int> shares_;  // where micro-batches have moved
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_TRAINING_RUN_H_
