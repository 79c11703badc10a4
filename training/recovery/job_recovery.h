// JobRecovery: has a training job go on when it loses a worker, when one leaves, and when one
// comes.
#ifndef WEFT_TRAINING_RECOVERY_JOB_RECOVERY_H_
#define WEFT_TRAINING_RECOVERY_JOB_RECOVERY_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "distributed/settle_step.h"
#include "training/job/job.h"
#include "training/job/trainer.h"
#include "training/recovery/broken_pairs.h"
#include "training/recovery/job_members.h"

namespace weft {

// One loss, and how the job has gone on.
struct RecoveryRecord {
  std::vector<std::string> lost;  // names of workers
  std::vector<std::string> come;  // in their places
  int before = 0;                 // workers
  int after = 0;
  double seconds = 0;         // from the error until steps may go on; these are its parts:
  double settle_seconds = 0;  // until all that are left stand at one step
  ChangeTimes times;
};

// Of the error of a lost worker: what was wrong, and what to do about it. Without what follows from
// it: who waited for whom, and what peers have seen of the loss.
std::string CauseText(const absl::Status& loss);
// "settled 0.01 s, plan 0.00 s (prepared), joined 0.02 s, programs 0.05 s, state 0.00 s".
std::string PartsText(const RecoveryRecord& record);

// Where all workers answer and some have lost each other, one of each pair goes, for good
// (BrokenPairs): so no pair ends the job's steps twice.
//
// Changes the job in place: plan, programs. Borrows it and all that the options capture. One thread
// calls it.
class JobRecovery final : public LossHandler {
 public:
  JobRecovery(PreparedJob& job, JobRecoveryOptions options)
      : job_(job), options_(std::move(options)), members_(job_, options_) {}

  // Why a job of this plan, spec and kind cannot go on without a worker, with what to do; "" = it
  // can. Such a job need not agree on steps (JobSpec::commits). With `may_grow`, workers may come
  // while it runs: then one replica is enough to begin with.
  static std::string WhyNot(const PreparedJob& job, const JobSpec& spec, bool may_grow = false);
  // Why a job of this kind cannot go on from an earlier state either (copies, checkpoints),
  // whatever its plan; "" = it can.
  static std::string WhyNotFromState(const PreparedJob& job, const JobSpec& spec,
                                     bool may_grow = false);

  // The next GoOn goes on without this worker (its rank so far), though it answers, and wants
  // nobody in its place.
  void LeaveOut(int rank) { left_out_.insert(rank); }

  absl::StatusOr<WentOn> GoOn(Coordinator& coordinator, const absl::Status& loss, int64_t before,
                              int64_t reported) override;
  bool wants_change(const Coordinator& coordinator) override;
  absl::StatusOr<bool> ChangeMembers(Coordinator& coordinator, int64_t step) override;
  // Workers that it has lost so, and gone on.
  int64_t losses() const { return losses_; }
  // Each loss, in order.
  const std::vector<RecoveryRecord>& records() const { return records_; }

 private:
  // How it has gone on, and without which ranks; `source`: what from, where not from what workers
  // have.
  struct Outcome {
    WentOn went_on;
    std::vector<int> out;
    std::string source;
    double settle_seconds = 0;
  };
  absl::Status GoOnOnce(Coordinator& coordinator, int64_t before, int64_t reported,
                        Outcome& outcome);
  // Where the members change, at a step boundary, though one of these has state of its own: all
  // take up what all have now.
  absl::Status RebuildFromNow(Coordinator& coordinator, int64_t step,
                              const std::vector<int>& leaving,
                              const std::vector<WorkerClient*>& givers);
  double SecondsSince(int64_t nanos) const;
  // Where all ranks answer, those of `left`, the next GoOn goes on without one of each pair that
  // have lost each other. Nobody is wanted for who is left out, for that or for LeaveOut.
  void LeaveOutWhoIsApart(const Coordinator& coordinator, const std::vector<int>& left);
  // Why these workers are out, for people.
  std::string WhyOut(const absl::Status& loss, const std::vector<std::string>& out) const;

  PreparedJob& job_;
  const JobRecoveryOptions options_;
  JobMembers members_;
  bool has_arrivals_ = false;  // that are not taken in yet
  int64_t losses_ = 0;
  std::vector<RecoveryRecord> records_;
  std::set<int> left_out_;
  BrokenPairs pairs_;
  bool are_apart_ = false;  // it is for this that the newest GoOn goes on without somebody
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_JOB_RECOVERY_H_
