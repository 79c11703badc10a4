// The device that a rank computes on.
#ifndef WEFT_TRAINING_JOB_RANK_DEVICE_H_
#define WEFT_TRAINING_JOB_RANK_DEVICE_H_

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/ids.h"
#include "graph/plan.h"
#include "tensor/device.h"

namespace weft {

// The device of this process of the kind that the plan's worker of the rank has, for compiling the
// rank's programs ahead (what they need; nothing runs). It lives for ever. `plan` is complete.
// The errors of FindDevice (tensor/lookup/device_lookup.h); OutOfRange where the plan has no such
// rank or the cluster no such worker.
absl::StatusOr<Device*> DeviceOfRank(const ClusterSpec& cluster, const Plan& plan, RankId rank);

// The same of a worker (an index into ClusterSpec::workers).
absl::StatusOr<Device*> DeviceOfWorker(const ClusterSpec& cluster, int worker);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_RANK_DEVICE_H_
