// ReplicaCheck: compares what replicas have in common while a job trains, and mends or ends it
// where bits differ that must be equal.
#ifndef WEFT_TRAINING_RECOVERY_REPLICA_CHECK_H_
#define WEFT_TRAINING_RECOVERY_REPLICA_CHECK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "distributed/replica_copies.h"
#include "platform/clock.h"
#include "training/job/job.h"
#include "training/job/trainer.h"

namespace weft {

// What follows where copies differ.
enum class OnDivergence : uint8_t {
  kRepair,  // the copy of the majority goes to the others; without a majority as kStop
  kStop,    // the run ends
  kIgnore,  // it is told, and nothing else
};

struct ReplicaCheckOptions {
  // After so many steps. 0: as often as it takes at most 0.5 % of the time of the steps, and at
  // most twice a second.
  int64_t every = 0;
  OnDivergence on_divergence = OnDivergence::kRepair;
  // Has the job go on without this rank when the call ends with Unavailable
  // (JobRecovery::LeaveOut); null: it cannot.
  std::function<void(int rank)> leave_out = nullptr;
  // Is told a line for people.
  std::function<void(const std::string& line)> say;
  Clock* clock = nullptr;  // null: the machine's
};

// What was found once.
struct Divergence {
  int64_t step = 0;   // so many were done
  int64_t since = 0;  // after so many all copies were equal, the last time they were compared
  // Whose copies differ from the majority's; without one all that have copies.
  std::vector<std::string> workers;
  std::vector<std::string> variables;
  std::string action;  // "repaired", "stopped", "ignored", "left out", or "read again": equal then
  // "passing": the step after the repair came to equal bits; "lasting": it did not, the memory did
  // not keep the repair, or it happened before in this run; "" where nothing tells.
  std::string fault;
};

struct ReplicaCheckSummary {
  int64_t variables = 0;  // that have copies
  int64_t checks = 0;
  double seconds = 0;      // that the steps waited, all of them
  int64_t last_equal = 0;  // after so many steps all copies were equal
  bool has_ended = false;  // the run, because copies differed
  std::vector<Divergence> divergences;
};

// A hook of the loop: comes before hooks that read or save the state. Every replica adds the same
// gradients and updates alike, so copies are equal bit for bit until memory, a link or a processor
// errs. A difference is read twice: one that is gone was an error of reading. After a repair the
// very next step is compared, which computes from equal bits: equal ones again, the fault has
// passed. A worker that differs then, whose memory does not keep what it was repaired with, or that
// differs a second time later, has a lasting fault: the job goes on without it, or ends with
// DataLoss. That names workers, variables and the steps in which it has happened. Borrows the job,
// whose plan may change. One thread calls it.
class ReplicaCheck final : public LoopHook {
 public:
  // `first_step`: steps that a resumed run has done; copies are equal there, as they were loaded.
  ReplicaCheck(const PreparedJob& job, int64_t first_step, ReplicaCheckOptions options);

  int64_t NextCall(int64_t step) const override;
  absl::StatusOr<std::string> Call(Coordinator& coordinator, int64_t step) override;
  absl::Status AtEnd(Coordinator& coordinator, int64_t step) override;

  const ReplicaCheckSummary& summary() const { return summary_; }

 private:
  absl::Status Check(Coordinator& coordinator, int64_t step);
  // What follows from copies that differ.
  absl::Status Handle(Coordinator& coordinator, int64_t step,
                      const std::vector<VariableCopies>& suspects,
                      const std::vector<DivergedCopies>& diverged);
  // Gives the wrong ones the majority's copy; those that still differ then.
  absl::StatusOr<std::vector<DivergedCopies>> Repair(Coordinator& coordinator,
                                                     const std::vector<VariableCopies>& suspects,
                                                     const std::vector<DivergedCopies>& diverged);
  // Says of those of the repaired workers whose fault has passed that it has: all but `wrong`.
  void TellPassed(const Coordinator& coordinator, int64_t step, const std::vector<int>& wrong);
  // The error that ends the run, or has it go on without `ranks`.
  absl::Status LeaveOutOrEnd(Divergence divergence, const std::vector<int>& ranks,
                             const std::string& text);
  absl::Status End(Divergence divergence, const std::string& text);
  // What was found, without what is done.
  std::string Describe(const Coordinator& coordinator, const Divergence& divergence,
                       const std::vector<DivergedCopies>& diverged) const;
  void FindCopiesOf(const Coordinator& coordinator);
  // When it is due next; `steps` have taken so long, and this check paused them.
  void Schedule(int64_t step, int64_t steps, double seconds, double pause);

  const PreparedJob& job_;
  const ReplicaCheckOptions options_;
  Clock& clock_;
  Mesh mesh_;                // that copies_ are of
  bool has_copies_ = false;  // copies_ are known
  std::vector<VariableCopies> copies_;
  ReplicaCheckSummary summary_;
  std::map<const WorkerClient*, int> faults_;  // divergences by worker
  std::set<const WorkerClient*> repaired_;     // by the newest check: the next step tells
  std::string told_;                           // the newest that was ignored
  int64_t last_step_;                          // of the newest check
  int64_t last_nanos_;                         // when it ended
  int64_t next_;
  int64_t interval_;         // steps to next_
  double step_seconds_ = 0;  // of the steps before the newest check
  double pause_ = 0;         // what a check takes
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_REPLICA_CHECK_H_
