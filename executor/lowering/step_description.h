// A step, or a program on its way to one, as text. Internal to executor/.
#ifndef WEFT_EXECUTOR_LOWERING_STEP_DESCRIPTION_H_
#define WEFT_EXECUTOR_LOWERING_STEP_DESCRIPTION_H_

#include <string>

#include "executor/lowering/lowered_step.h"
#include "executor/lowering/lowering_program.h"

namespace weft {

// What runs: one line per instruction, stable.
std::string Describe(const LoweredStep& step);
// The same with what each instruction reads and writes, and with the buffers: "b7 64 bytes 3..5".
// Merged buffers have one name. What the passes still have to do comes at the end.
std::string Describe(const LoweringProgram& program);
// "node 'fill' (ConstantOfShape, int64[1] -> float32[99]) makes 396 of them", or "".
std::string DescribeLargestValue(const LoweredStep& step);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_STEP_DESCRIPTION_H_
