// JobRecovery: has a training job go on with the workers that are left when it loses one.
#ifndef WEFT_TRAINING_RECOVERY_JOB_RECOVERY_H_
#define WEFT_TRAINING_RECOVERY_JOB_RECOVERY_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "distributed/settle_step.h"
#include "graph/plan.h"
#include "platform/clock.h"
#include "training/job/job.h"
#include "training/job/trainer.h"

namespace weft {

struct JobRecoveryOptions {
  // The programs of the job's steps under another plan (PartitionTraining).
  std::function<absl::StatusOr<std::vector<JobProgram>>(const Plan& plan)> repartition;
  // The evaluation within the job, prepared anew for the job as it is now
  // (PrepareEvaluationWithin); null result: there is none. May be null.
  std::function<absl::StatusOr<const PreparedJob*>()> evaluation = nullptr;
  // The loss with what is known of the processes, before they are told of (WorkerCluster::Explain);
  // null: as it is.
  std::function<absl::Status(const absl::Status& loss)> explain = nullptr;
  // Is told which workers (ranks so far) are out of the job, before the others go on: a process
  // that does not answer must not come back. May be null.
  std::function<void(const std::vector<int>& ranks)> on_lost = nullptr;
  // Is told the plan that the following steps run under; may be null.
  std::function<void(const Plan& plan)> on_plan = nullptr;
  // Is told a line for people.
  std::function<void(const std::string& line)> say;
  Clock* clock = nullptr;  // null: the machine's
};

// Changes the job in place: plan, programs. Borrows it and all that the options capture. One thread
// calls it.
class JobRecovery final : public LossHandler {
 public:
  JobRecovery(PreparedJob& job, JobRecoveryOptions options)
      : job_(job), options_(std::move(options)) {}

  // Why a job of this plan, spec and kind cannot go on without a worker, with what to do; "" = it
  // can. Such a job need not agree on steps (JobSpec::commits).
  static std::string WhyNot(const PreparedJob& job, const JobSpec& spec);

  // The next GoOn goes on without this worker (its rank so far), though it answers.
  void LeaveOut(int rank) { left_out_.insert(rank); }

  absl::StatusOr<SettledStep> GoOn(Coordinator& coordinator, const absl::Status& loss,
                                   int64_t reported) override;
  // How often it has, and workers that it has lost so.
  int64_t losses() const { return losses_; }

 private:
  absl::StatusOr<SettledStep> GoOnOnce(Coordinator& coordinator, int64_t reported,
                                       std::vector<int>& out);

  PreparedJob& job_;
  const JobRecoveryOptions options_;
  int64_t losses_ = 0;
  std::set<int> left_out_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_JOB_RECOVERY_H_
