// Which pipeline stage each node and variable lives on. Internal to placement/.
#ifndef WEFT_PLACEMENT_PIPELINE_STAGE_ASSIGNMENT_H_
#define WEFT_PLACEMENT_PIPELINE_STAGE_ASSIGNMENT_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/plan.h"

namespace weft {

// Sets Node::stage of every node and returns the stage of every variable, by name (its owner, which
// updates it): as plan.stages (names or patterns of forward nodes) and AssignParts
// (placement/rules/part_assignment.h) say. InvalidArgument naming nodes when the forward pass would
// go back, a stage has no node, or a plan's entry fits no node.
absl::StatusOr<std::map<std::string, int>> AssignStages(Graph& graph, const Plan& plan);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PIPELINE_STAGE_ASSIGNMENT_H_
