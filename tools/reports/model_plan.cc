#include "tools/reports/model_plan.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "onnx_import/device_annotations.h"
#include "placement/files/plan_file.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

constexpr char kConfiguration[] = "weft";

// The workers by which the cluster knows the devices; empty when some device has no worker's name.
std::vector<int> WorkersByName(const DeviceConfiguration& configuration,
                               const ClusterSpec& cluster) {
  std::vector<int> workers;
  for (const std::string& name : configuration.device_names) {
    const auto found = std::find_if(cluster.workers.begin(), cluster.workers.end(),
                                    [&](const WorkerSpec& worker) { return worker.name == name; });
    if (found == cluster.workers.end()) return {};
    workers.push_back(static_cast<int>(found - cluster.workers.begin()));
  }
  return workers;
}

// Whether the annotations could have been written for the whole plan.
bool Agrees(const Plan& annotated, const Plan& whole) {
  const auto same = [](const auto& part, const auto& all) {
    return std::all_of(part.begin(), part.end(), [&](const auto& entry) {
      const auto found = all.find(entry.first);
      return found != all.end() && found->second == entry.second;
    });
  };
  return whole.mesh.size() == annotated.mesh.size() &&
         static_cast<int>(whole.workers.size()) == whole.mesh.size() &&
         whole.mesh.pipeline == annotated.mesh.pipeline &&
         (whole.mesh.pipeline == 1 || same(annotated.stages, whole.stages)) &&
         same(annotated.tensor_shardings, whole.tensor_shardings);
}

// The annotations checked, and the rest from the metadata where it is there for the same mesh.
absl::StatusOr<Plan> ReadPlan(const ImportedModel& model, const DeviceConfiguration& configuration,
                              const ClusterSpec& cluster) {
  WEFT_ASSIGN_OR_RETURN(Plan plan, PlanOfConfiguration(model, configuration.name));
  const std::vector<int> workers = WorkersByName(configuration, cluster);
  for (int& device : plan.workers) {
    if (!workers.empty()) device = workers[device];
  }
  const auto metadata = model.metadata.find(kPlanMetadata);
  if (configuration.name != kConfiguration || metadata == model.metadata.end()) return plan;
  WEFT_ASSIGN_OR_RETURN(Plan whole,
                        ParsePlanFile(metadata->second, absl::StrCat("metadata ", kPlanMetadata)));
  if (!Agrees(plan, whole)) return plan;  // somebody else has annotated it anew
  if (whole.mesh == plan.mesh) {
    whole.workers = std::move(plan.workers);
  } else {  // a tensor axis along which nothing is split is none to the annotations
    const std::set<int> used(whole.workers.begin(), whole.workers.end());
    for (int& worker : whole.workers) {
      worker = static_cast<int>(std::distance(used.begin(), used.find(worker)));
      if (!workers.empty()) worker = workers[worker];
    }
  }
  // Another loss, optimizer or cluster makes no other plan of it.
  whole.model_digest = 0;
  whole.cluster_digest = 0;
  whole.prediction = {};
  return whole;
}

}  // namespace

absl::Status UseModelPlan(const ImportedModel& model, const JobFlags& flags, Console& console,
                          JobSpec& spec) {
  const std::vector<DeviceConfiguration> configurations = DeviceConfigurationsOf(model);
  if (!flags.names_no_plan() || configurations.empty()) return absl::OkStatus();
  const int workers = static_cast<int>(spec.cluster.workers.size());
  const auto fitting =
      std::find_if(configurations.begin(), configurations.end(),
                   [&](const DeviceConfiguration& one) { return one.devices == workers; });
  if (fitting == configurations.end()) {
    std::vector<std::string> sizes;
    for (const DeviceConfiguration& one : configurations)
      sizes.push_back(absl::StrCat(one.devices));
    *console.err << "note: the model's device annotations are for " << absl::StrJoin(sizes, " or ")
                 << " devices, there are " << workers << " workers: they are not used\n";
    return absl::OkStatus();
  }
  absl::StatusOr<Plan> plan = ReadPlan(model, *fitting, spec.cluster);
  if (!plan.ok()) return WithExitCode(plan.status(), ExitCode::kPlan);
  *console.err << "plan from the model's device configuration '" << Printable(fitting->name)
               << "'\n";
  if (spec.plan.micro_batches > 1) plan->micro_batches = spec.plan.micro_batches;
  plan->threads_per_worker = spec.plan.threads_per_worker;
  if (spec.plan.strict) {
    plan->strict = true;
    plan->reduction = Reduction::kOrderedTree;
  }
  // What no flag says stays as the plan has it.
  if (spec.plan.tf32) plan->tf32 = true;
  plan->uses_cudnn = spec.plan.uses_cudnn;  // no plan has these
  plan->fuses_nodes = spec.plan.fuses_nodes;
  spec.plan = *std::move(plan);
  spec.drop_absent_names = true;
  spec.search.wanted = false;
  return absl::OkStatus();
}

absl::Status WriteAnnotatedModel(FileSystem& files, const std::string& path,
                                 const ImportedModel& model, const Plan& plan,
                                 const ClusterSpec& cluster) {
  const auto folder = [](const std::string& file) {
    std::error_code error;
    return std::filesystem::absolute(file, error).lexically_normal().parent_path();
  };
  if (HasExternalTensors(model) && folder(path) != folder(model.file.path())) {
    return absl::InvalidArgumentError(absl::StrCat(
        model.file.Label(),
        " has tensors in other files of its folder; write the annotated model there too, not to ",
        path));
  }
  std::vector<std::string> names;
  for (const WorkerSpec& worker : cluster.workers) names.push_back(worker.name);
  WEFT_ASSIGN_OR_RETURN(const std::string bytes,
                        AnnotateModel(model, plan, kConfiguration, names, PlanToYaml(plan)));
  return files.WriteFileAtomically(path, bytes);
}

}  // namespace weft
