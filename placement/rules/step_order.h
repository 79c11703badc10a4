// In which order a step sums what its micro-batches made: what the guard waits for comes first, so
// that no variable changes before the guard is known. Internal to placement/.
#ifndef WEFT_PLACEMENT_RULES_STEP_ORDER_H_
#define WEFT_PLACEMENT_RULES_STEP_ORDER_H_

#include <vector>

#include "graph/graph.h"

namespace weft {

// The report of a training step that is looked at before a variable changes: the one named
// kStepGuard, else "loss", else the first scalar of a floating-point type; kNoValue without any.
ValueId GuardOf(const Graph& graph);

// By NodeId: what the guard is computed from, boundaries included, nodes of micro-batches not.
// kNoValue is computed from nothing.
std::vector<bool> NodesOfGuard(const Graph& graph, ValueId guard);

// When the last term of a later sum is made.
struct SumTurn {
  int stage = 0;     // that makes it
  int position = 0;  // of the node that makes it, among those of its stage
  NodeId sum;
};
// The order in which later sums come into buckets: the backward pass goes from the last stage to
// the first, and through a stage in the order of its nodes. Of one node the sums come by their ids.
inline bool IsSummedBefore(const SumTurn& a, const SumTurn& b) {
  if (a.stage != b.stage) return a.stage > b.stage;
  return a.position != b.position ? a.position < b.position : a.sum < b.sum;
}

// Whether the sum is one of the first: of a value that the forward pass made, or for the guard. The
// others are summed in the order in which the backward pass completes them.
bool IsFirstSum(const Graph& graph, const std::vector<bool>& of_guard, NodeId boundary);

}  // namespace weft

#endif  // WEFT_PLACEMENT_RULES_STEP_ORDER_H_
