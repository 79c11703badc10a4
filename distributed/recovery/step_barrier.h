// StepBarrier: the agreement of all ranks of a job on each step, over its communicator.
#ifndef WEFT_DISTRIBUTED_RECOVERY_STEP_BARRIER_H_
#define WEFT_DISTRIBUTED_RECOVERY_STEP_BARRIER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/interfaces/communicator.h"
#include "executor/interfaces/step_commit.h"

namespace weft {

// A sum of one number over all ranks, by recursive doubling: ceil(log2(n)) messages of 8 bytes a
// rank and step, two more where n is no power of two. It is complete on a rank only after all have
// brought theirs. Borrows the communicator, whose deadlines and errors are its own.
class StepBarrier final : public StepCommit {
 public:
  // `ranks` of the job, this one's among them; all open it at the same place among their
  // collectives.
  static absl::StatusOr<std::unique_ptr<StepBarrier>> Open(Communicator& communicator, int ranks);
  absl::Status Agree(int64_t step) override;

 private:
  StepBarrier(Communicator& communicator, int ranks) : communicator_(communicator), ranks_(ranks) {}

  Communicator& communicator_;
  const int ranks_;
  Communicator::CollectiveHandle collective_ = -1;
  std::vector<std::vector<float>> values_;  // by buffer of the schedule
  std::vector<void*> buffers_;              // where they are
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_RECOVERY_STEP_BARRIER_H_
