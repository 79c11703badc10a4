// Pass "in_place": decides which outputs are written over their inputs. Internal to executor/.
//
// Input   a program in which every value has memory of its own.
// Output  one in which buffers are merged where a kernel may write over an input that nobody needs
//         any more, and with copies for the updates that could not be made in place. None are left
//         to do.
// Laws    A constant is never written to; a variable only by its own update, after all that read
//         it. Inputs that a forward run may borrow from its caller are not written to either. A
//         variable that becomes the old value of another one gets it from a copy.
#ifndef WEFT_EXECUTOR_LOWERING_MERGE_IN_PLACE_H_
#define WEFT_EXECUTOR_LOWERING_MERGE_IN_PLACE_H_

#include "executor/lowering/lowering_program.h"

namespace weft {

// `training`: Partition::training. Programs that do not train may borrow their inputs.
LoweringProgram MergeInPlace(LoweringProgram program, bool training);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_MERGE_IN_PLACE_H_
