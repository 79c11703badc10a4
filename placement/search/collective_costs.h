// CollectiveCosts: seconds of collectives of whole tensors, asked of the cost model once each, also
// for other workers that are alike.
// Internal to placement/search/.
#ifndef WEFT_PLACEMENT_SEARCH_COLLECTIVE_COSTS_H_
#define WEFT_PLACEMENT_SEARCH_COLLECTIVE_COSTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "graph/sharding.h"
#include "placement/cost/cost_model.h"
#include "placement/cost/device_profile.h"

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
  CollectiveCosts(const CollectiveCosts&) = delete;  // known_ points into times_
  // 0 for a group of one.
  double Seconds(const CollectiveUse& use, const std::vector<int>& workers);

 private:
  using Times = std::map<CollectiveUse, double>;
  // All that the cost model looks at of a group: devices, which members share a host, the order of
  // the hosts, and links. Of many members the workers themselves.
  std::vector<int> TraitsOf(const std::vector<int>& workers);
  Times& TimesOf(const std::vector<int>& workers);

  const CostModel& cost_;
  std::vector<LinkProfile> links_;            // that differ
  std::map<std::vector<int>, Times> times_;   // by traits
  std::map<std::vector<int>, Times*> known_;  // by workers, into times_
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_COLLECTIVE_COSTS_H_
