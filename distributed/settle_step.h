// SettleStep: brings the workers that are left to one step, after a job has lost one.
#ifndef WEFT_DISTRIBUTED_SETTLE_STEP_H_
#define WEFT_DISTRIBUTED_SETTLE_STEP_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/worker_client.h"

namespace weft {

struct SettledStep {
  std::vector<int> left;  // clients that answer, by index; the others are lost
  int64_t steps = 0;      // of the newest run, that all of them have done
  // What those steps reported, from the one that was asked for on. Fewer, without the first, where
  // a worker keeps no more (kKeptReports).
  std::vector<StepReport> reports;
};

// After the `runs`-th call of RunSteps since the workers joined has ended with an error on all of
// them. Asks each how far it has come; has those finish the step under way that must
// (distributed/recovery/step_decision.h); `reported`: steps of the run whose reports have come.
// Calls the clients in parallel. Unavailable: nobody is left. DataLoss: those that are left cannot
// come to one step; nothing was changed then. One that is lost meanwhile is one more of the lost.
absl::StatusOr<SettledStep> SettleStep(const std::vector<WorkerClient*>& clients, int64_t runs,
                                       int64_t reported);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_SETTLE_STEP_H_
