// How the parameters of a model lie along the tensor axis: dynamic programming with a beam.
#ifndef WEFT_PLACEMENT_SEARCH_TENSOR_SPLIT_H_
#define WEFT_PLACEMENT_SEARCH_TENSOR_SPLIT_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/sharding.h"
#include "placement/cost/cost_model.h"
#include "placement/search/tensor_costs.h"

namespace weft {

// Walks the forward nodes of a training graph with concrete shapes in topological order. A state
// says how the values lie that are still read later; where a node reads a variable first, the state
// branches into each way in which the node can read it; the node itself then does what
// PropagateShardings would. Hints for values are two: a value whose split axis the node needs whole
// is hinted to lie whole, instead of being exchanged for one that is split along another axis. And
// rows that indices pick from a split variable may be hinted to lie whole. States that differ in
// the past only are merged. A choice costs its shard's compute, conversions of inputs, and the
// backward pass as index notation gives it: the gradient of an operand that a split node reads
// whole is a sum over the ranks, that of a slice is gathered. Megatron's column and row split with
// its two all-reduces per block comes out; a test says so. Deterministic. Errors are those of the
// ops' rules.
absl::StatusOr<TensorSplit> FindTensorSplit(const Graph& graph, const CostModel& cost,
                                            const TensorSplitOptions& options);

// The hints of the fastest split, with nodes taken apart that ExpandForHints would take apart for
// it. Where splitting nothing is fastest, or options.saves_memory says so, bytes that a rank keeps
// have a price, so that what is large is split. Empty where no variable can be split. Given
// shardings are kept.
absl::StatusOr<std::map<std::string, AxisSharding>> ChooseTensorShardings(
    const Graph& graph, const CostModel& cost, const TensorSplitOptions& options);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_TENSOR_SPLIT_H_
