// RunSchedule: what becomes of a job under a schedule of faults, and what is wrong with that.
#ifndef WEFT_TESTS_SOAK_SOAK_RUN_H_
#define WEFT_TESTS_SOAK_SOAK_RUN_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/soak/fault_schedule.h"

namespace weft::testing {

struct SoakOutcome {
  // What must not be, a line each: a hang, a wrong weight or loss, a loss without a cause, an error
  // that names no fault that has struck, a checkpoint that does not resume. Empty: all is well.
  std::vector<std::string> complaints;
  std::set<std::string> struck;  // rows of the faults that have come
  int losses = 0;                // after which the job went on
  // Losses after which a job of which no replica is whole went on from copies in workers' memory.
  int from_copies = 0;
  int joins = 0;             // of new workers
  bool stopped = false;      // because a worker left that the job needs
  std::string error;         // with which it ended; "" = it came to its end
  int64_t resumed_from = 0;  // the step that the run after it began with
  absl::Duration turned;     // virtual time that passed in waits
};

// Runs the schedule's job, strict, on workers of this process; then resumes it from what it has
// saved, on workers that nothing befalls. Both must come to the bits of a run of one worker that
// nobody disturbs. Takes a folder of the system's temporary directory meanwhile.
SoakOutcome RunSchedule(const FaultSchedule& schedule);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SOAK_SOAK_RUN_H_
