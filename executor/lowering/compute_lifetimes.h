// Pass "lifetimes": when each buffer is first and last touched. Internal to executor/.
//
// Input   a program whose instructions are all there.
// Output  the same with the lifetimes in its buffer table, from which the arena is laid out.
// Laws    A buffer lives from the first to the last instruction that names it or one merged with
//         it. What the communication list works on lives from its signal to its await, a report
//         beyond the last instruction, and rows that are copied ahead as long as the step, for
//         those of the next one come there.
#ifndef WEFT_EXECUTOR_LOWERING_COMPUTE_LIFETIMES_H_
#define WEFT_EXECUTOR_LOWERING_COMPUTE_LIFETIMES_H_

#include "executor/lowering/lowering_program.h"

namespace weft {

LoweringProgram ComputeLifetimes(LoweringProgram program);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_COMPUTE_LIFETIMES_H_
