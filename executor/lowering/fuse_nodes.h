// Before the passes: nodes that one kernel computes become one (ops/fusion). For executor/, and
// for who says beforehand what will be fused (training/job/fused_nodes.h).
//
// Input   a partition, and what the kind of device takes.
// Output  a copy with fused nodes. Names of variables, inputs, outputs and sums stay.
// Laws    A fused node lies within one action of the step, and on one side of the guard. No other
//         node changes its place in the order, so collectives and transfers keep their turns.
#ifndef WEFT_EXECUTOR_LOWERING_FUSE_NODES_H_
#define WEFT_EXECUTOR_LOWERING_FUSE_NODES_H_

#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "ops/fusion/attention_gradient.h"
#include "ops/fusion/fuse_regions.h"
#include "ops/fusion/fusion_rules.h"
#include "ops/fusion/join_products.h"

namespace weft {

// A partition, and how many nodes became how many, each micro graph counted once.
struct FusedPartition {
  Partition partition;
  FusionCounts counts;
};

// Products take what they are joined with first (JoinProducts, where `takes` is not null); regions
// are made of the nodes that are left. The errors of both, and of OrderOfEnd, come through.
absl::StatusOr<FusedPartition> FuseNodes(const Partition& partition, const FusionRules& rules,
                                         const TakesProduct& takes = nullptr);

// A partition, and how many gradients of attention became one node, each micro graph counted once.
struct JoinedPartition {
  Partition partition;
  int gradients = 0;
};

// A copy whose micro graphs have been through JoinAttentionGradients, under the same laws as
// FuseNodes. Before it: what it joins would be fused with neighbours. The errors of `takes` and of
// Graph::Compact come through.
absl::StatusOr<JoinedPartition> JoinAttention(const Partition& partition,
                                              const TakesAttention& takes);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_FUSE_NODES_H_
