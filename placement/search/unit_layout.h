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
  // they follow their readers (AssignParts); nodes that nothing of a micro-batch needs lie
  // with what they read (placement/pipeline/off_path_nodes.h).
  std::vector<std::vector<std::string>> nodes;
  std::map<std::string, int> owners;  // the unit of each variable, by name (PlaceInUnits)

  int size() const { return static_cast<int>(nodes.size()); }
};

// At most `max_units` units of about equal time on the cluster's first worker, cut where the fewest
// bytes cross. The graph has concrete shapes.
absl::StatusOr<UnitLayout> CutIntoUnits(const Graph& graph, const CostModel& cost, int max_units);

// Sets Node::stage of every node to its unit, and the owners of variables: as the partitioner finds
// stages (AssignParts). `graph` is the whole training graph, or the same for some samples.
absl::Status PlaceInUnits(Graph& graph, UnitLayout& layout);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_UNIT_LAYOUT_H_
