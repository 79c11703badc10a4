// Completes a plan that the user gave, shardings of its tensor axis included.
#ifndef WEFT_PLACEMENT_SEARCH_GIVEN_PLAN_H_
#define WEFT_PLACEMENT_SEARCH_GIVEN_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/graph.h"
#include "graph/inference.h"
#include "graph/plan.h"
#include "placement/cost/cost_model.h"

namespace weft {

// Whether the plan has a tensor axis and no hint that splits anything along it. Hints that keep
// parameters whole do not count: with these alone every rank would do all the work.
bool LeavesTensorAxisOpen(const Plan& plan);

// As CompletePlan. A plan that leaves its tensor axis open gets the hints that the search would
// take for its mesh (ChooseTensorShardings), beside those that it has. InvalidArgument where that
// finds no parameter to split: every rank of the axis would do all the work. Errors are those of
// CompletePlan, too.
absl::StatusOr<Plan> CompleteGivenPlan(const Graph& graph, const ClusterSpec& cluster,
                                       const CostModel& cost, Plan plan, int64_t global_batch,
                                       NodeEvaluator& evaluator);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_GIVEN_PLAN_H_
