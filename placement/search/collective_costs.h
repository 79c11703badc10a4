// CollectiveCosts: seconds of collectives of whole tensors, asked of the cost model once each.
// Internal to placement/search/.
#ifndef WEFT_PLACEMENT_SEARCH_COLLECTIVE_COSTS_H_
#define WEFT_PLACEMENT_SEARCH_COLLECTIVE_COSTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "graph/sharding.h"
#include "placement/cost/cost_model.h"

namespace weft {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kGatherOrScatter,  // all-gather or reduce-scatter
  kAllToAll,
};

// Some collectives of one kind over `bytes` each: of the whole tensor.
struct CollectiveUse {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int64_t bytes = 0;
  friend auto operator<=>(const CollectiveUse&, const CollectiveUse&) = default;
};

// The collective that changes a sharding; nullopt where nothing is sent.
std::optional<CollectiveKind> CollectiveOfConversion(const AxisSharding& from,
                                                     const AxisSharding& to);

// Borrows the model. Not thread-safe: it remembers.
class CollectiveCosts {
 public:
  explicit CollectiveCosts(const CostModel& cost) : cost_(cost) {}
  // 0 for a group of one.
  double Seconds(const CollectiveUse& use, const std::vector<int>& workers);

 private:
  const CostModel& cost_;
  std::map<std::vector<int>, std::map<CollectiveUse, double>> known_;  // by workers
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_COLLECTIVE_COSTS_H_
