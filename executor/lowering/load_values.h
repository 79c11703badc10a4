// Pass "values": brings what lies in slots to the instructions that want it in buffers. Internal to
// executor/.
//
// Input   a program whose buffers in `loads` nobody writes.
// Output  the same with a Load before the first reader of each, and with the slots that each
//         instruction is the last to need.
// Laws    A value is loaded at most once. Constants and reports stay in their slots; every other
//         slot is released by exactly one instruction.
#ifndef WEFT_EXECUTOR_LOWERING_LOAD_VALUES_H_
#define WEFT_EXECUTOR_LOWERING_LOAD_VALUES_H_

#include "executor/lowering/lowering_program.h"

namespace weft {

LoweringProgram LoadValues(LoweringProgram program);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_LOAD_VALUES_H_
