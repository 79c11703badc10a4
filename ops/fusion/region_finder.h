// Finds the sets of nodes that one kernel may compute.
#ifndef WEFT_OPS_FUSION_REGION_FINDER_H_
#define WEFT_OPS_FUSION_REGION_FINDER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "ops/fusion/fusion_rules.h"

namespace weft {

// Two nodes or more, of which something is needed. A value. All lists are in order of ids, and have
// each id once.
struct Region {
  std::vector<NodeId> nodes;
  // The node whose place the fused one takes.
  NodeId seat;
  // What it reads of others: values, constants among them.
  std::vector<ValueId> inputs;
  // What others need of it.
  std::vector<ValueId> outputs;
  // What its reduction gives; kNoValue where it has none.
  ValueId folded;
};

// The regions of a graph, in order of their first nodes; no node is in two. `colors`, by NodeId:
// nodes of different colors are never together; empty = all have one. Internal where ids are not in
// topological order, which Graph::Compact gives them. The laws are in ops/fusion/README.md.
absl::StatusOr<std::vector<Region>> FindRegions(const Graph& graph, const FusionRules& rules,
                                                const std::vector<int>& colors = {});

}  // namespace weft

#endif  // WEFT_OPS_FUSION_REGION_FINDER_H_
