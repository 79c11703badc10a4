// The text of `plan`: which worker runs what.
#ifndef WEFT_TOOLS_REPORTS_PLAN_REPORT_H_
#define WEFT_TOOLS_REPORTS_PLAN_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "nlohmann/json.hpp"
#include "platform/file_system.h"
#include "training/job/compiled_memory.h"
#include "training/job/fused_nodes.h"

namespace weft {

// What is said of all predicted times, in JSON: "calibrated", and "measured_over_predicted" with
// the spread that such predictions had (placement/cost/prediction_error.h).
void AddPredictionError(bool calibrated, nlohmann::ordered_json& json);

// For people: a row per rank, one per channel and collective, the order of actions. `planned`: what
// the ranks' compiles find them to need (PlanRanks); the others have estimates.
absl::StatusOr<std::string> PlanText(const Plan& plan, const ClusterSpec& cluster,
                                     const std::vector<Partition>& partitions,
                                     const PlannedRanks& planned);
// What runs whole on every tensor-parallel rank for want of a sharding rule, op by op, and what
// that costs a rank; then what is read whole since heads cannot be shared evenly. Empty where there
// is nothing of either.
std::string ReplicationText(const Plan& plan, const std::vector<Partition>& partitions);
absl::StatusOr<nlohmann::ordered_json> PlanJson(const Plan& plan, const ClusterSpec& cluster,
                                                const std::vector<Partition>& partitions,
                                                const PlannedRanks& planned);

// The spares of a cluster, a line each; no plan has them. "" where there are none.
std::string SparesText(const ClusterSpec& cluster);
nlohmann::ordered_json SparesJson(const ClusterSpec& cluster);

// What the GPUs of a plan fuse: its line, and the kernels of each rank with their parts.
nlohmann::ordered_json FusionJson(const JobFusion& fusion);

// The ranks of a plan, or of what it would be without recomputation.
struct RanksOfPlan {
  std::vector<Partition> partitions;
  PlannedRanks planned;  // as PlanText takes them
};

// What recomputation costs and saves: a row per rank. `kept` are the ranks of the same plan without
// it.
absl::StatusOr<std::string> RecomputationText(const RanksOfPlan& ranks, const RanksOfPlan& kept);
absl::StatusOr<nlohmann::ordered_json> RecomputationJson(const RanksOfPlan& ranks,
                                                         const RanksOfPlan& kept);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_PLAN_REPORT_H_
