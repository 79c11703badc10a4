// How the workers of a sweep are cut into shares for its trials.
#ifndef WEFT_TOOLS_SWEEP_TRIAL_SHARES_H_
#define WEFT_TOOLS_SWEEP_TRIAL_SHARES_H_

#include "absl/status/statusor.h"
#include "graph/plan.h"
#include "tools/flags/cluster_share.h"

namespace weft {

// What shares are cut by.
struct ShareQuestion {
  int workers = 1;            // there are
  int needed = 0;             // by the plan of each trial: WorkersNeeded
  int trials = 1;             // of the grid
  int side_by_side = 0;       // 0: as many as there are workers for
  bool of_a_cluster = false;  // a cluster file names the workers
};

// The workers that a plan asks for: those of its mesh, or up to the last one that it names. 0 where
// it takes as many as there are.
int WorkersNeeded(const Plan& plan);

// The first share. Where a plan says how many workers it needs, each share has exactly these; else
// as many as there are for each. Where there are too few for one trial, all workers are one share,
// and the trial says what it misses. A usage error for more trials side by side than there are
// workers for.
absl::StatusOr<WorkerShare> CutWorkers(const ShareQuestion& question);

}  // namespace weft

#endif  // WEFT_TOOLS_SWEEP_TRIAL_SHARES_H_
