// Step inputs (InputRole::kStep) that whoever runs steps sets by itself; the others come with the
// step.
#ifndef WEFT_GRAPH_STEP_INPUTS_H_
#define WEFT_GRAPH_STEP_INPUTS_H_

namespace weft {

// int64 []: the number of the step, 1 for the first one.
inline constexpr char kStepInput[] = "weft.step";

}  // namespace weft

#endif  // WEFT_GRAPH_STEP_INPUTS_H_
