// Runs single nodes on the CPU outside a program: constant folding, tests, `inspect`.
#ifndef WEFT_OPS_NODE_RUNNER_H_
#define WEFT_OPS_NODE_RUNNER_H_

#include "graph/inference.h"
#include "ops/kernel.h"

namespace weft {

// Evaluates a node with the production kernels on the CPU, one thread; ops that only alias are
// handled too. Thread-safe, lives for ever.
NodeEvaluator& CpuNodeEvaluator();
// The same with the reference kernels (float64 where the inputs are).
NodeEvaluator& ReferenceNodeEvaluator();

// Whether the CPU runs the node itself: it has a kernel of either kind, or needs none (aliases,
// communication). A node that it does not run may have an expansion (graph/expansion.h).
bool RunsNode(const Node& node);

}  // namespace weft

#endif  // WEFT_OPS_NODE_RUNNER_H_
