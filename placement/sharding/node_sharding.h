// How one node is sharded along the tensor axis. Internal to placement/.
#ifndef WEFT_PLACEMENT_SHARDING_NODE_SHARDING_H_
#define WEFT_PLACEMENT_SHARDING_NODE_SHARDING_H_

#include <vector>

#include "graph/sharding.h"

namespace weft {

// What a node reads and makes, per input and output (Replicated where there is no operand).
struct NodeSharding {
  std::vector<AxisSharding> inputs;
  std::vector<AxisSharding> outputs;
  bool is_sharded() const;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_NODE_SHARDING_H_
