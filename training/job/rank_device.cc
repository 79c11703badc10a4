#include "training/job/rank_device.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensor/lookup/device_lookup.h"

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

}  // namespace weft
