// Pass "sums": from leaves to the sums over micro-batches. Internal to executor/.
//
// Input   a program with lowered::Leaf instructions, without collective nodes.
// Output  one without: the first leaf of a sum is made where the sum grows, later ones are added,
//         in order or as an ordered tree. A lowered::SumReady stands where a sum is final.
// Laws    The additions of a sum and their order follow from its leaves alone, so all ranks get the
//         same bits. A value that others read too is not the memory in which a sum grows: they get
//         a copy that stays.
#ifndef WEFT_EXECUTOR_LOWERING_BUILD_SUMS_H_
#define WEFT_EXECUTOR_LOWERING_BUILD_SUMS_H_

#include "absl/status/statusor.h"
#include "executor/lowering/lowering_program.h"

namespace weft {

// Internal where a sum is read before all its leaves are there, or never complete.
absl::StatusOr<LoweringProgram> BuildSums(LoweringProgram program);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_BUILD_SUMS_H_
