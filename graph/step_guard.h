// What decides whether a training step may change variables.
#ifndef WEFT_GRAPH_STEP_GUARD_H_
#define WEFT_GRAPH_STEP_GUARD_H_

namespace weft {

// The output of a training graph (a floating scalar) that must be finite before any variable
// changes. A graph without one is guarded by its loss.
inline constexpr char kStepGuard[] = "weft.guard";

}  // namespace weft

#endif  // WEFT_GRAPH_STEP_GUARD_H_
