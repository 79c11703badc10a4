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
// updates it).
//  * Forward nodes: what plan.stages says (names or patterns); else the latest stage among the
//  nodes
//    they read; else (they read only variables, constants and inputs) the earliest among their
//    readers; else the last.
//  * A variable: the earliest stage that reads it going forward; optimizer state: its parameter's.
//  * Backward nodes: the stage of the forward node they come from; sums of gradients without one:
//  the
//    stage of what they are the gradient of; never later than the backward nodes they read.
//  * Accumulate: where its input is made. Update nodes: the owner of the variable that they name as
//    their origin; else the last stage if they lead to a report of the forward pass (the loss),
//    else the owner of the variable they lead to.
// InvalidArgument naming nodes when the forward pass would go back, a stage has no node, or a
// plan's entry fits no node.
absl::StatusOr<std::map<std::string, int>> AssignStages(Graph& graph, const Plan& plan);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PIPELINE_STAGE_ASSIGNMENT_H_
