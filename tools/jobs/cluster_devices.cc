#include "tools/jobs/cluster_devices.h"

#include "absl/strings/str_cat.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

// Started by somebody, on a machine that only it knows: it says itself what it has
// (JobMembership::device).
bool IsRemote(const WorkerSpec& worker) { return !worker.address.empty(); }

}  // namespace

absl::Status CheckClusterDevices(const ClusterSpec& cluster) {
  for (const WorkerSpec& worker : cluster.workers) {
    if (IsRemote(worker)) continue;
    const absl::Status device = CheckDevice(worker.device, worker.device_index);
    if (device.ok()) continue;
    return WithExitCode(
        absl::Status(
            device.code(),
            absl::StrCat("worker '", worker.name, "' on host '", worker.host,
                         "': ", std::string(device.message()),
                         "; or say 'device: cpu' in the cluster file (plan and simulate can price ",
                         DeviceName(worker.device, worker.device_index), " nevertheless)")),
        ExitCode::kPlan);
  }
  return absl::OkStatus();
}

std::string NoteOnClusterDevices(const ClusterSpec& cluster) {
  int missing = 0;
  const WorkerSpec* first = nullptr;
  for (const WorkerSpec& worker : cluster.workers) {
    if (IsRemote(worker) || CheckDevice(worker.device, worker.device_index).ok()) continue;
    if (missing++ == 0) first = &worker;
  }
  if (missing == 0) return "";
  return absl::StrCat("note: this process can price but not run ", missing, " of ",
                      cluster.workers.size(), " workers: '", first->name, "' on host '",
                      first->host, "' has ", DeviceName(first->device, first->device_index));
}

}  // namespace weft
