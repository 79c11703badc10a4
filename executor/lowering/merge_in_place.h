// Pass "in_place": decides which outputs are written over their inputs. Internal to executor/.
//
// Input   a program in which every value has memory of its own.
// Output  one in which buffers are merged where a kernel may write over an input that nobody needs
//         any more, and with copies for the updates that could not be made in place. None are left
//         to do.
// Laws    A constant is never written to; a variable only by its own update, after all that read
//         it. What the caller of a forward run may lend is not written to either. A variable that
//         becomes the old value of another one gets it from a copy.
#ifndef WEFT_EXECUTOR_LOWERING_MERGE_IN_PLACE_H_
#define WEFT_EXECUTOR_LOWERING_MERGE_IN_PLACE_H_

#include "executor/lowering/lowering_program.h"

namespace weft {

// `training`: Partition::training. Inputs of other programs may be lent.
LoweringProgram MergeInPlace(LoweringProgram program, bool training);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_MERGE_IN_PLACE_H_
