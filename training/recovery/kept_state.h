// FindKeptState: what the workers of a job still have of it when its coordinator was lost.
#ifndef WEFT_TRAINING_RECOVERY_KEPT_STATE_H_
#define WEFT_TRAINING_RECOVERY_KEPT_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/state_handover.h"
#include "distributed/worker_client.h"
#include "training/checkpoint/state_source.h"
#include "training/job/job.h"

namespace weft {

// The state of a job after a step, in the memory of its workers: what a run needs to go on with it
// (JobStart, TrainOptions).
struct KeptState {
  uint64_t job_id = 0;
  int64_t steps = 0;                // of the job, that are done on all of them
  std::vector<StepReport> reports;  // of the newest of these, in order
  // LoopHook::SaveState, as it was before the steps of those reports.
  std::map<std::string, double> loop;
  // Where the workers have what they need in their variables: ranks of the run that goes on that
  // have not, and who gives it to them.
  std::set<int> newcomers;
  std::vector<Handover> handovers;
  // Where they have not: all begin anew, and take the state from here (Restore). Null: they have.
  std::shared_ptr<StateSource> source;

  // The first step that has a report here, or the next one.
  int64_t first_step() const { return steps - static_cast<int64_t>(reports.size()); }
};

struct KeptSearch {
  std::optional<KeptState> state;
  // Why what they keep of the job cannot be used; "" where it can, or where they keep nothing.
  std::string why_not;
};

// Asks the workers of a run that begins, by rank; none of them has joined it yet. `job` and
// `evaluation` (or null) are what it is going to run; `job_digest`: JobMembership::job_digest; what
// is kept of other jobs is not looked at. `others`: workers that the run does not begin with, and
// that may have been in the job: spares. Their state is read where no worker of the run has it; one
// that does not answer has none. The workers finish or leave out the step that was under
// way, as one (SettleStep). Where they are of different pasts, the newest counts. Where the plan
// is another, they hold their state beside their variables (HoldStateRequest); where they cannot
// come to one step, the newest copies count that they hold (HeldSource). Nothing else changes on
// them. The errors are those of lost workers.
absl::StatusOr<KeptSearch> FindKeptState(const std::vector<WorkerClient*>& clients,
                                         const PreparedJob& job, const PreparedJob* evaluation,
                                         uint64_t job_digest,
                                         const std::vector<WorkerClient*>& others = {});

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_KEPT_STATE_H_
