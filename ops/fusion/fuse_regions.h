// Replaces regions of a graph by fused nodes.
#ifndef WEFT_OPS_FUSION_FUSE_REGIONS_H_
#define WEFT_OPS_FUSION_FUSE_REGIONS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "ops/fusion/fusion_rules.h"

namespace weft {

// What became of a graph.
struct FusionCounts {
  int nodes = 0;    // that are now parts
  int regions = 0;  // nodes that they became
};

// Fuses what FindRegions finds, with the same arguments and errors. A fused node has id, name,
// phase, stage and origin of the region's seat; its outputs keep their ids and names. The values
// within are gone. The order of all other nodes stays.
absl::StatusOr<FusionCounts> FuseRegions(Graph& graph, const FusionRules& rules,
                                         const std::vector<int>& colors = {});

}  // namespace weft

#endif  // WEFT_OPS_FUSION_FUSE_REGIONS_H_
