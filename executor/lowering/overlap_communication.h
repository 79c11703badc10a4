// Pass "overlap": ties the communication list to the compute list. Internal to executor/.
//
// Input   a program with lowered::SumReady instructions and a communication list.
// Output  one without, but with a Signal where the last sum of a collective is final, and an Await
//         before the first instruction that touches what the collective works on after that.
// Laws    A collective of the communication list runs between its signal and the await, and nothing
//         of the compute list touches its memory meanwhile. All are awaited before the step ends,
//         and those that are signalled by then before a Commit.
#ifndef WEFT_EXECUTOR_LOWERING_OVERLAP_COMMUNICATION_H_
#define WEFT_EXECUTOR_LOWERING_OVERLAP_COMMUNICATION_H_

#include "absl/status/statusor.h"
#include "executor/lowering/lowering_program.h"

namespace weft {

// Internal where the compute list would wait for a collective that was never signalled.
absl::StatusOr<LoweringProgram> OverlapCommunication(LoweringProgram program);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_OVERLAP_COMMUNICATION_H_
