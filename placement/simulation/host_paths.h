// HostPaths: what goes between devices with memory of their own, and through their hosts all the
// same.
#ifndef WEFT_PLACEMENT_SIMULATION_HOST_PATHS_H_
#define WEFT_PLACEMENT_SIMULATION_HOST_PATHS_H_

#include <cstdint>
#include <set>
#include <vector>

#include "graph/ids.h"

namespace weft {

// As a job's coordinator chooses it from the partitions of all ranks. Of all else the cost model
// says which way it goes (CostModel::WayBetween, WayOfGroup).
struct HostPaths {
  std::set<std::vector<RankId>> groups;  // of collectives, in member order
  std::set<int64_t> channels;            // by number
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_HOST_PATHS_H_
