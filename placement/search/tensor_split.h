// How the parameters of a model lie along the tensor axis: dynamic programming with a beam.
#ifndef WEFT_PLACEMENT_SEARCH_TENSOR_SPLIT_H_
#define WEFT_PLACEMENT_SEARCH_TENSOR_SPLIT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/sharding.h"
#include "placement/cost/cost_model.h"

namespace weft {

struct TensorSplitOptions {
  std::vector<int> workers;  // of one tensor-parallel group
  int threads = 1;
  // Parameters that are given, by name or pattern.
  std::map<std::string, AxisSharding> given;
  // States that are kept from node to node.
  int beam = 64;
  // What a byte of a parameter costs that a rank holds for ever, in seconds of a micro-batch; more
  // than 0 asks for a plan that fits.
  double seconds_per_byte = 0;
};

// A choice of wishes (Plan::tensor_shardings) for the variables that forward nodes of `graph` read.
struct TensorSplit {
  std::map<std::string, AxisSharding> shardings;  // those that are split
  // Of a micro-batch on one rank: compute, and collectives forward and backward.
  double seconds = 0;
};

// Walks the forward nodes of a training graph with concrete shapes in topological order. A state
// says how the values lie that are still read later; where a node reads a variable first, the
// state branches into each way in which the node can read it; the node itself then does what
// PropagateShardings would. What a choice costs: the shard's compute, conversions of its inputs,
// and the backward pass as index notation gives it: the gradient of an operand that is read whole
// by a split node is a sum over the ranks, and what a conversion moved moves back.
// Deterministic. Errors are those of the ops' rules.
absl::StatusOr<TensorSplit> FindTensorSplit(const Graph& graph, const CostModel& cost,
                                            const TensorSplitOptions& options);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_TENSOR_SPLIT_H_
