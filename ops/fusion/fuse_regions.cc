#include "ops/fusion/fuse_regions.h"

#include "ops/fusion/region_finder.h"
#include "ops/fusion/region_replacer.h"
#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<FusionCounts> FuseRegions(Graph& graph, const FusionRules& rules,
                                         const std::vector<int>& colors) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Region> regions, FindRegions(graph, rules, colors));
  FusionCounts counts;
  if (regions.empty()) return counts;
  RegionReplacer replacer(graph);
  for (const Region& region : regions) {
    replacer.Fuse(region);
    counts.nodes += static_cast<int>(region.nodes.size());
    ++counts.regions;
  }
  return counts;
}

}  // namespace weft
