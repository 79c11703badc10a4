// Plans that travel with a model, as ONNX's multi-device annotations.
#ifndef WEFT_TOOLS_REPORTS_MODEL_PLAN_H_
#define WEFT_TOOLS_REPORTS_MODEL_PLAN_H_

#include <string>

#include "absl/status/status.h"
#include "onnx_import/importer.h"
#include "platform/file_system.h"
#include "tools/console/console.h"
#include "tools/flags/job_flags.h"

namespace weft {

// Where the flags name no plan: takes that of the first device configuration that has as many
// devices as the cluster has workers, and says so; where none has, says that too. Devices that are
// called like workers are these workers, else device k is worker k. Micro-batches, schedule and
// what else the annotations cannot say come from the model's metadata (kPlanMetadata), unless flags
// say them. Errors of PlanOfConfiguration, with exit code 4.
absl::Status UseModelPlan(const ImportedModel& model, const JobFlags& flags, Console& console,
                          JobSpec& spec);

// Writes the model with `plan`, which is complete, as the configuration "weft". InvalidArgument
// where its tensors lie in other files and `path` is in another folder.
absl::Status WriteAnnotatedModel(FileSystem& files, const std::string& path,
                                 const ImportedModel& model, const Plan& plan,
                                 const ClusterSpec& cluster);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_MODEL_PLAN_H_
