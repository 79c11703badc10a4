// JobMembers: has a job run on the workers that its Membership says.
#ifndef WEFT_TRAINING_RECOVERY_JOB_MEMBERS_H_
#define WEFT_TRAINING_RECOVERY_JOB_MEMBERS_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "distributed/worker_source.h"
#include "graph/plan.h"
#include "platform/clock.h"
#include "training/job/job.h"
#include "training/recovery/membership.h"

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
  // Is told which workers are out of the job, before the others go on: a process that does not
  // answer must not come back. May be null.
  std::function<void(const std::vector<WorkerClient*>& workers)> on_lost = nullptr;
  // The same of those that have left on purpose, once the others do without them: they may end.
  std::function<void(const std::vector<WorkerClient*>& workers)> on_left = nullptr;
  // Is told the plan that the following steps run under; may be null.
  std::function<void(const Plan& plan)> on_plan = nullptr;
  // Where workers in the place of lost ones come from; borrowed, null: none come.
  WorkerSource* source = nullptr;
  // How long the others wait for one before they go on without; 0: they go on at once, and it is
  // taken in later.
  absl::Duration wait = absl::ZeroDuration();
  // Asked while they wait; true ends that. May be null.
  std::function<bool()> stop = nullptr;
  // Is told a line for people.
  std::function<void(const std::string& line)> say;
  Clock* clock = nullptr;  // null: the machine's
};

// Carries out what Membership decides, between two steps, on workers that stand at the same step.
// Changes the job in place: plan, programs. Borrows it and the options. One thread calls it.
class JobMembers {
 public:
  JobMembers(PreparedJob& job, const JobRecoveryOptions& options);

  // These ranks are gone.
  void Lose(const Coordinator& coordinator, const std::vector<int>& ranks);
  // These leave on purpose: the same, but that they still answer, and on_lost is not told.
  void Leave(const Coordinator& coordinator, const std::vector<int>& ranks);
  // Whether the job can do without these ranks.
  bool CanSpare(const Coordinator& coordinator, const std::vector<int>& ranks);
  // Places those that have come. Whether members change by it.
  bool TakeArrivals(const Coordinator& coordinator);
  // Makes the coordinator's workers those of Membership::Next: they join a new job, get programs,
  // and newcomers take the state of a member. Before that, waits for newcomers (options.wait). One
  // that is lost meanwhile is one more of the lost; newcomers that cannot be used are left out. An
  // error: those that are left cannot go on.
  absl::Status Change(Coordinator& coordinator);
  // Names of those that the newest Change has taken in.
  const std::vector<std::string>& come() const { return come_; }

 private:
  // At the first call: who the members are.
  void Begin(const Coordinator& coordinator);
  int PlaceOf(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  JobMember& At(int place) { return places_[static_cast<size_t>(place)]; }
  void LosePlaces(const std::vector<int>& places);
  // Places a worker that has come, unless nobody wants it any more.
  void Place(const Arrival& arrival);
  void WantVacancies();
  // Waits for workers in all places.
  void Await();
  absl::Status TakeIn(Coordinator& coordinator, const NextMembers& next);
  std::vector<int> FindLost(const NextMembers& next);
  // Where newcomers are among them: the job does without.
  bool LeaveNewcomersOut(const NextMembers& next, const absl::Status& why);

  PreparedJob& job_;
  const JobRecoveryOptions& options_;
  Clock& clock_;
  Membership membership_;
  std::vector<JobMember> places_;  // by place; empty before the first call
  std::vector<int> ranks_;         // place of each rank
  std::set<int> refused_;          // places whose newcomers could not be used
  std::vector<std::string> come_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_JOB_MEMBERS_H_
