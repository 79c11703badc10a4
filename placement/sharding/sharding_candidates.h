// The ways in which one node can be sharded. Internal to placement/.
#ifndef WEFT_PLACEMENT_SHARDING_SHARDING_CANDIDATES_H_
#define WEFT_PLACEMENT_SHARDING_SHARDING_CANDIDATES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/op_schema.h"
#include "graph/sharding.h"
#include "placement/sharding/node_sharding.h"

namespace weft {

// The first candidate is all Replicated; then one for each parallel or sum factor of the rule that
// has at least `shards` elements, each also in blocks where an input lies so (`current`, per
// input); then one for each linear set of which an input is Partial. Without a rule, or with a
// body, only the first.
absl::StatusOr<std::vector<NodeSharding>> ShardingCandidates(
    const NodeView& node, const std::vector<AxisSharding>& current, int shards);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_SHARDING_CANDIDATES_H_
