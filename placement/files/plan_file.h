// Plans and cluster specs as YAML. Schemas in docs/plan-files.md.
#ifndef WEFT_PLACEMENT_FILES_PLAN_FILE_H_
#define WEFT_PLACEMENT_FILES_PLAN_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/plan.h"

namespace weft {

// What a file may ask of one worker.
inline constexpr int64_t kMaxWorkerThreads = 4096;

// `file_name` is for messages only. Unknown keys (with a suggestion), wrong types, bad units,
// duplicate addresses: InvalidArgument "file:line:column: ...".
absl::StatusOr<ClusterSpec> ParseClusterFile(const std::string& text, const std::string& file_name);
std::string ClusterToYaml(const ClusterSpec& cluster);

absl::StatusOr<Plan> ParsePlanFile(const std::string& text, const std::string& file_name);
std::string PlanToYaml(const Plan& plan);

// "dp=2,tp=1,pp=2,micro=4,schedule=1f1b": a plan's mesh, micro-batches and schedule; missing = 1.
// "schedule=interleaved" needs "chunks=2" or more.
// The caller completes it with CompletePlan.
absl::StatusOr<Plan> ParseParallel(const std::string& text);

}  // namespace weft

#endif  // WEFT_PLACEMENT_FILES_PLAN_FILE_H_
