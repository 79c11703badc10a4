// Checks the invariants numbered in graph/graph.h.
#ifndef WEFT_GRAPH_VERIFIER_H_
#define WEFT_GRAPH_VERIFIER_H_

#include "absl/status/status.h"
#include "graph/graph.h"

namespace weft {

// Which invariants are checked besides 1 to 7.
struct VerifyOptions {
  bool concrete_shapes = false;  // also invariant 11
  bool exact_shapes = false;     // invariant 7 also for shapes that both sides know
  bool training = false;         // also invariants 8, 9 and 10
};

// Internal with "invariant N: node 'x' (Op): ..." for the first violation, in id order.
absl::Status VerifyGraph(const Graph& graph, const VerifyOptions& options = {});

}  // namespace weft

#endif  // WEFT_GRAPH_VERIFIER_H_
