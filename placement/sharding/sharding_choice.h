// What it costs one node to be split in one way, given how its inputs lie. Internal to placement/.
#ifndef WEFT_PLACEMENT_SHARDING_SHARDING_CHOICE_H_
#define WEFT_PLACEMENT_SHARDING_SHARDING_CHOICE_H_

#include <vector>

#include "graph/graph.h"
#include "graph/sharding.h"
#include "placement/sharding/node_sharding.h"

namespace weft {

// Less is better: first the bytes that each rank sends to convert inputs and outputs, then the
// outputs that are made in another way than they are hinted (who hints for a shard wants it made,
// not cut out of the whole), then the number of conversions.
struct ShardingScore {
  double bytes = 0;
  int unhinted = 0;
  int conversions = 0;
  friend auto operator<=>(const ShardingScore&, const ShardingScore&) = default;
};

// Scores ways to split the nodes of a graph with concrete global shapes. Borrows it.
class ShardingScorer {
 public:
  ShardingScorer(const Graph& graph, int shards)
      : graph_(graph), shards_(shards), uses_(graph.BuildUses()) {}

  // `current`: how each input lies; `hints`: what each output is converted to.
  ShardingScore Score(const Node& node, const NodeSharding& candidate,
                      const std::vector<AxisSharding>& current,
                      const std::vector<AxisSharding>& hints) const;
  const std::vector<std::vector<Graph::Use>>& uses() const { return uses_; }

 private:
  // Bytes to convert a value for one reader.
  double InputCost(ValueId value, const AxisSharding& from, const AxisSharding& to) const;

  const Graph& graph_;
  const int shards_;
  const std::vector<std::vector<Graph::Use>> uses_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_SHARDING_CHOICE_H_
