// JobMembers: has a job run on the workers that its Membership says.
#ifndef WEFT_TRAINING_RECOVERY_JOB_MEMBERS_H_
#define WEFT_TRAINING_RECOVERY_JOB_MEMBERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/coordinator.h"
#include "distributed/worker_source.h"
#include "graph/plan.h"
#include "platform/clock.h"
#include "training/checkpoint/state_source.h"
#include "training/job/job.h"
#include "training/recovery/membership.h"
#include "training/recovery/prepared_programs.h"
#include "training/recovery/survivor_plan.h"
#include "training/recovery/waiting_workers.h"

namespace weft {

struct JobRecoveryOptions {
  // The ranks agree on each step (JobSpec::commits): where a whole replica is left, the job goes on
  // with the variables that its workers have. Else, and always without it, with an earlier state.
  bool commits = true;
  // After so many steps each rank's state is copied to another (JobSpec::replicate_every), and the
  // job may go on from those copies; 0: there are none.
  int64_t replicate_every = 0;
  // The newest whole checkpoint of the job of a later step than `after`; null: there is none. May
  // be null: the job has no checkpoints.
  std::function<absl::StatusOr<std::unique_ptr<StateSource>>(int64_t after)> checkpoint = nullptr;
  // Whether the run began with the initial values of the graph, and not with a checkpoint.
  bool begins_anew = true;
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
  // After so long, the programs of plans that a loss would lead to are made while steps run, in a
  // thread of its own that calls `repartition`: shorter jobs need none. Members then change on
  // purpose once their programs are there. absl::InfiniteDuration(): nothing is made ahead.
  absl::Duration prepares_after = absl::InfiniteDuration();
  // Is told a line for people.
  std::function<void(const std::string& line)> say;
  Clock* clock = nullptr;  // null: the machine's
};

// Where the time of a change of members went, in seconds.
struct ChangeTimes {
  double wait = 0;        // for workers that were to come
  double plan = 0;        // for the plan and its partitions
  bool prepared = false;  // which had been made before
  double join = 0;        // members join the new job
  double programs = 0;    // and take its programs, those of evaluations among them
  double state = 0;       // newcomers take the state of a member
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
  // These ranks, which are to be lost, are not wanted back: what was wrong with them would be so
  // again.
  void Refuse(const Coordinator& coordinator, const std::set<int>& ranks);
  // The place that a rank of now has.
  int PlaceNow(const Coordinator& coordinator, int rank) {
    Begin(coordinator);
    return PlaceOf(rank);
  }
  // Whether the job can do without these ranks.
  bool CanSpare(const Coordinator& coordinator, const std::vector<int>& ranks);
  // The same where all that stay begin anew (Rebuild).
  bool CanBeginAgainWithout(const Coordinator& coordinator, const std::vector<int>& ranks);
  // Places those that have come, those without a place of their own where they fit. Whether members
  // change by it now.
  bool TakeArrivals(const Coordinator& coordinator);
  // Makes the coordinator's workers those of Membership::Next: they join a new job, get programs,
  // and newcomers take the state of a member. Before that, waits for newcomers (options.wait). One
  // that is lost meanwhile is one more of the lost; newcomers that cannot be used are left out. An
  // error: those that are left cannot go on.
  absl::Status Change(Coordinator& coordinator);
  // What Rebuild has gone on from.
  struct Rebuilt {
    int64_t step = 0;  // steps of the job that were done
    std::string source;
  };
  // The same where no whole replica is left, or their variables are of no use: all that are left
  // begin anew, under a plan for so many (PlanForFewer), with the newest state that one of these
  // has: copies in the memory of the members and of `givers`, if they are asked; a checkpoint; with
  // copies that were not made yet, the beginning of the run. FailedPrecondition where there is no
  // such state.
  absl::StatusOr<Rebuilt> Rebuild(Coordinator& coordinator, bool asks_workers,
                                  const std::vector<WorkerClient*>& givers = {});
  // Names of those that the newest Change has taken in.
  const std::vector<std::string>& come() const { return come_; }
  // Of the newest Change.
  const ChangeTimes& times() const { return times_; }
  // Workers that are in no place, and wait for one.
  const std::vector<Arrival>& waiting() const { return waiting_.all(); }

 private:
  // At the first call: who the members are.
  void Begin(const Coordinator& coordinator);
  int PlaceOf(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  JobMember& At(int place) { return places_[static_cast<size_t>(place)]; }
  const std::string& DeviceAt(int place) const { return devices_[static_cast<size_t>(place)]; }
  void LosePlaces(const std::vector<int>& places);
  // Places a worker that has come, or has it wait.
  void Place(const Coordinator& coordinator, const Arrival& arrival);
  void Put(int place, const Arrival& arrival);
  // Gives those that wait the places that there are for them.
  void PlaceWaiting();
  // One more of those that have been taken in.
  void NoteNewcomer(const WorkerClient& newcomer);
  // Says that it waits, and why.
  std::string WaitText(const Arrival& arrival) const;
  // Those that wait, and are gone, leave.
  void LetGo();
  void WantVacancies();
  bool has_wanted() const;
  // Waits for workers in all places of the plan that the job began with.
  void Await(const Coordinator& coordinator);
  // The job's programs under this plan, made now or before.
  absl::StatusOr<std::vector<JobProgram>> ProgramsFor(const Plan& plan);
  // Begins to make programs ahead when the job has run for a while.
  void PrepareInTime(const Coordinator& coordinator);
  // Makes programs ahead for every single loss from here on.
  void Prepare();
  // The time since the mark, which moves here.
  double Lap();
  absl::Status TakeIn(Coordinator& coordinator, const NextMembers& next);
  // Where the state is when no member has what is needed of it.
  absl::StatusOr<std::unique_ptr<StateSource>> FindState(const std::vector<WorkerClient*>& holders,
                                                         bool asks_workers);
  // Members at these places (of the plan so far) begin anew under this plan, with this state.
  absl::Status BeginAgain(Coordinator& coordinator, const SurvivorPlan& next, StateSource& source);
  // They have: places are those of the plan from here on.
  void Settle(const SurvivorPlan& next);
  // What follows where members join: their programs.
  absl::Status Equip(Coordinator& coordinator);
  std::vector<int> FindLost(const std::vector<int>& places);
  // Where newcomers are among them: the job does without.
  bool LeaveNewcomersOut(const std::vector<int>& places, const absl::Status& why);

  PreparedJob& job_;
  const JobRecoveryOptions& options_;
  Clock& clock_;
  Membership membership_;
  std::vector<JobMember> places_;  // by place; empty before the first call
  std::vector<int> wanted_as_;     // by place: what WorkerSource calls it
  std::vector<int> ranks_;         // place of each rank
  // By place: what the plan's worker computes on, "cuda:1"; "" = not known.
  std::vector<std::string> devices_;
  std::set<int> refused_;  // places for which nobody is wanted any more
  WaitingWorkers waiting_;
  std::set<const WorkerClient*> unasked_;  // of places: they have come for any
  std::vector<std::string> come_;
  ChangeTimes times_;
  int64_t mark_ = 0;  // of Lap
  std::optional<PreparedPrograms> prepared_;
  absl::Time begun_;
  bool is_preparing_ = false;  // for losses
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_JOB_MEMBERS_H_
