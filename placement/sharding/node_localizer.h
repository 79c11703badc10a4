// Rewrites the shape-like attributes and constant inputs of one shard of a node. Internal to
// placement/.
#ifndef WEFT_PLACEMENT_SHARDING_NODE_LOCALIZER_H_
#define WEFT_PLACEMENT_SHARDING_NODE_LOCALIZER_H_

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attribute.h"
#include "graph/op_schema.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/sharding/sharding_propagation.h"

namespace weft {

// What the shard of a node has of its own.
struct LocalizedNode {
  Attributes attributes;
  std::map<int, Tensor> constants;  // by input, in place of the node's
};

// `global` is the node with global shapes; the shard is that of `index` of `shards`.
absl::StatusOr<LocalizedNode> LocalizeNode(const GraphNodeView& global,
                                           const NodeSharding& sharding, int shards, int index);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_NODE_LOCALIZER_H_
