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

}  // namespace weft

#endif  // WEFT_OPS_NODE_RUNNER_H_
