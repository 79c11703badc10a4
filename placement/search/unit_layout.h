// UnitLayout: the forward pass cut into units, the smallest things that the search moves between
// pipeline stages.
#ifndef WEFT_PLACEMENT_SEARCH_UNIT_LAYOUT_H_
#define WEFT_PLACEMENT_SEARCH_UNIT_LAYOUT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "placement/cost/cost_model.h"

namespace weft {

// Units follow each other in topological order.
struct UnitLayout {
  // Names of each unit's forward nodes. Cheap nodes that read no other node's output are in none:
  // they follow their readers, as in AssignStages; nodes that nothing of a micro-batch needs lie
  // with what they read (placement/pipeline/off_path_nodes.h).
  std::vector<std::vector<std::string>> nodes;
  std::map<std::string, int> unit_of;  // by name

  int size() const { return static_cast<int>(nodes.size()); }
  // Of a node that has one or that was taken out of one that has (NAME/...); -1 = none.
  int Find(const std::string& name) const;
};

// At most `most` units of about equal time on the cluster's first worker, cut where the fewest
// bytes cross. The graph has concrete shapes.
absl::StatusOr<UnitLayout> CutIntoUnits(const Graph& graph, const CostModel& cost, int most);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_UNIT_LAYOUT_H_
