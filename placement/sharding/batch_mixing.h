// Which nodes mix the samples of a batch: where there are some, cutting the batch into
// micro-batches or over replicas changes what is computed.
#ifndef WEFT_PLACEMENT_SHARDING_BATCH_MIXING_H_
#define WEFT_PLACEMENT_SHARDING_BATCH_MIXING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/inference.h"
#include "placement/sharding/mixing_node.h"

namespace weft {

struct BatchMixing {
  std::vector<MixingNode> nodes;  // in topological order; empty: the batch may be cut freely
  // Why nothing is known; empty where the graph was looked at. Nothing may then be taken for
  // granted, but where the next is true.
  std::string unknown;
  // That is because shapes allow single samples only: there are no others that could be mixed.
  bool one_sample = false;

  bool mixes() const { return !nodes.empty(); }
  // All of them can be computed by replicas that have one micro-batch each.
  bool all_sum_over_replicas() const;
};

// Follows the samples from axis 0 of the data inputs through the forward nodes of a logical
// training or evaluation graph, by the factors of their operands. A node mixes samples where
//  * it needs the axis of the samples whole (statistics, a softmax over it, a slice of it);
//  * its operands have the samples in two different factors (a product [N,D] x [D,N]);
//  * it reads a sum or a mean over the samples otherwise than linearly, or chooses a branch by it;
//  * it uses the numbers of samples, or how many there are.
// Sums that are accumulated over micro-batches (the loss, its weight) are no mixing, nor is what
// only leads to them linearly, nor are lists of a number for each sample (PlaceSamples). A node
// without index notation is tried on made-up values (sample_probe.h); one that cannot be tried is
// taken to keep samples apart if its output still has their axis.
//
// The graph is looked at for two small numbers of samples; where its shapes do not allow these, for
// `samples` alone, of the plan's micro-batches. A pure function. Its cost is about that of
// partitioning twice.
BatchMixing FindBatchMixing(const Graph& graph, int64_t samples, NodeEvaluator& evaluator);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_BATCH_MIXING_H_
