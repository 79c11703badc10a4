// Evaluates a whole graph node by node: for tests, where speed does not matter.
#ifndef WEFT_OPS_TESTING_GRAPH_EVALUATOR_H_
#define WEFT_OPS_TESTING_GRAPH_EVALUATOR_H_

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace weft::testing {

// The values `wanted`, given a tensor for each graph input and variable (variables without one have
// their initial value). Runs what they need, on the CPU, with the kernels of `registry`.
absl::StatusOr<std::vector<Tensor>> EvaluateGraph(
    const Graph& graph, const std::map<ValueId, Tensor>& feeds, const std::vector<ValueId>& wanted,
    const KernelRegistry& registry = KernelRegistry::Global());

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_GRAPH_EVALUATOR_H_
