// How parameters and values lie along the tensor axis: an integer program.
#ifndef WEFT_PLACEMENT_SEARCH_TESTING_TENSOR_PROGRAM_H_
#define WEFT_PLACEMENT_SEARCH_TESTING_TENSOR_PROGRAM_H_

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "placement/cost/cost_model.h"
#include "placement/search/tensor_costs.h"
#include "placement/search/testing/choice_program.h"

namespace weft {

struct TensorProgramLimits {
  ChoiceLimits choices;
  // Combinations of ways in which the operands of one node can lie. Of a node with more of them
  // only those are looked at that a split of the node reads as they are.
  int64_t max_operand_ways = 2048;
};

// The sharding of a training graph with concrete shapes along the tensor axis as an integer
// program, after Alpa's intra-operator pass (Zheng et al., 2022). Each variable has one layout, and
// each value that forward nodes make one: as PropagateShardings makes it, or as the plan hints it.
// A layout and a row of a node's table have a 0-1 variable each; a row's is 1 where all of its
// layouts are chosen, as Alpa's edge variables are products.
// A node's choice is how its operands lie and what is hinted of its results; how it then splits
// itself, and at what cost (TensorCosts), follows. So what is chosen is exactly what a plan can say
// (Plan::tensor_shardings), and PropagateShardings gives it. Of several results all are hinted as
// one split of the node makes them, or all whole. A hint is made only where it saves something.
//
// Three things differ from Alpa. Variables with one reader are answered ahead, as are values that
// one table alone has: that is exact. Samples are not split: the data axis does it better. Of equal
// answers the one with fewer hints is taken, and what the backward pass reads is not left as a sum
// of parts.
//
// `min_seconds` of the answer equals `seconds` where the answer is proven to be the best; where
// the program stops before (ChoiceLimits::max_nodes) or leaves ways out, FindTensorSplit's answer
// is taken if it is better, and min_seconds is 0 if nothing is known of what was left out.
//
// Three things differ from Alpa. Variables with one reader, and values that one table alone has,
// are answered ahead; where the rest has more than 6000 rows, further ones, those first whose
// joined tables grow least: that is exact, where Alpa merges operators by rule. Samples are not
// split: a last batch may have fewer than there are ranks, and the data axis does it better. Of
// equal answers the one with fewer hints is taken, and what the backward pass reads is not left as
// a sum of parts. Neither way sees how the backward pass is split in fact: each backward node
// decides by itself, and its costs follow from index notation.
//
// Deterministic. ResourceExhausted, with the limit, when the program is too large for it; else the
// errors of the ops' rules.
absl::StatusOr<TensorSplit> SolveTensorSplit(const Graph& graph, const CostModel& cost,
                                             const TensorSplitOptions& options,
                                             const TensorProgramLimits& limits = {});

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_TESTING_TENSOR_PROGRAM_H_
