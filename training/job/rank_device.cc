#include "training/job/rank_device.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "tensor/device_id.h"

namespace weft {

absl::StatusOr<Device*> DeviceOfRank(const ClusterSpec& cluster, const Plan& plan, RankId rank) {
  if (rank.value < 0 || static_cast<size_t>(rank.value) >= plan.workers.size()) {
    return absl::OutOfRangeError(
        absl::StrCat("the plan has ", plan.workers.size(), " ranks, not rank ", rank.value));
  }
  const int worker = plan.workers[static_cast<size_t>(rank.value)];
  if (worker < 0 || static_cast<size_t>(worker) >= cluster.workers.size()) {
    return absl::OutOfRangeError(absl::StrCat("rank ", rank.value, " is on worker ", worker, " of ",
                                              cluster.workers.size()));
  }
  return DeviceOfWorker(cluster, worker);
}

absl::StatusOr<Device*> DeviceOfWorker(const ClusterSpec& cluster, int worker) {
  if (worker < 0 || static_cast<size_t>(worker) >= cluster.workers.size()) {
    return absl::OutOfRangeError(absl::StrCat("there is no worker ", worker, " among the ",
                                              cluster.workers.size(), " of the cluster"));
  }
  const WorkerSpec& spec = cluster.workers[static_cast<size_t>(worker)];
  return FindDevice(spec.device, spec.device_index);
}

std::string ExpectedDevice(const WorkerSpec& worker) {
  return worker.address.empty() ? "" : DeviceName(worker.device, worker.device_index);
}

absl::Status CheckLocalCards(const ClusterProfile& profile, const ClusterSpec& cluster,
                             absl::FunctionRef<std::string(DeviceKind, int)> describe) {
  for (size_t i = 0; i < cluster.workers.size(); ++i) {
    const WorkerSpec& worker = cluster.workers[i];
    if (!worker.address.empty()) continue;
    WEFT_RETURN_IF_ERROR(CheckProfiledCard(profile, static_cast<int>(i), worker.name,
                                           describe(worker.device, worker.device_index)));
  }
  return absl::OkStatus();
}

absl::Status CheckJoinedCards(const ClusterProfile& profile, const ClusterSpec& cluster,
                              const Plan& plan, const std::vector<WorkerInfo>& workers) {
  for (size_t rank = 0; rank < workers.size() && rank < plan.workers.size(); ++rank) {
    const int index = plan.workers[rank];
    if (index < 0 || index >= profile.num_workers() ||
        static_cast<size_t>(index) >= cluster.workers.size()) {
      continue;  // it has other workers than the job
    }
    const std::string& name = cluster.workers[static_cast<size_t>(index)].name;
    const WorkerDevice& device = workers[rank].device;
    WEFT_RETURN_IF_ERROR(CheckProfiledCard(profile, index, name, device.text));
    const std::string note = NoteOnProfiledDriver(profile, index, name, device.driver);
    if (!note.empty()) Log(LogLevel::kWarning, note);
  }
  return absl::OkStatus();
}

}  // namespace weft
