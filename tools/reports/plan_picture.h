// Pictures of a plan: for Graphviz, or a page that needs nothing but a browser.
#ifndef WEFT_TOOLS_REPORTS_PLAN_PICTURE_H_
#define WEFT_TOOLS_REPORTS_PLAN_PICTURE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "placement/cost/cost_model.h"
#include "placement/simulation/host_paths.h"

namespace weft {

// The forward pass coloured by stage, in Graphviz' language.
absl::StatusOr<std::string> PlanDot(const Graph& graph, const Plan& plan);

// One page with inline SVG and no scripts or links, of a plan with its prediction: which worker has
// what, the forward pass by stage, the grid of actions, and the timeline of the simulated step, a
// row per rank with its collectives below; what of an action is waiting for others is told apart.
// `host`: as of PredictPlan.
absl::StatusOr<std::string> PlanHtml(const Graph& graph, const Plan& plan,
                                     const std::vector<Partition>& partitions,
                                     const CostModel& costs, const HostPaths& host = {});

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_PLAN_PICTURE_H_
