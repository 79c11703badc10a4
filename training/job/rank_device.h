// The device that a rank computes on, and the card that a profile takes it for.
#ifndef WEFT_TRAINING_JOB_RANK_DEVICE_H_
#define WEFT_TRAINING_JOB_RANK_DEVICE_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/worker_client.h"
#include "graph/cluster_spec.h"
#include "graph/ids.h"
#include "graph/plan.h"
#include "placement/cost/cluster_profile.h"
#include "tensor/device.h"
#include "tensor/lookup/device_lookup.h"

namespace weft {

// The device of this process of the kind that the plan's worker of the rank has, for compiling the
// rank's programs ahead (what they need; nothing runs). It lives for ever. `plan` is complete.
// The errors of FindDevice (tensor/lookup/device_lookup.h); OutOfRange where the plan has no such
// rank or the cluster no such worker.
absl::StatusOr<Device*> DeviceOfRank(const ClusterSpec& cluster, const Plan& plan, RankId rank);

// The same of a worker (an index into ClusterSpec::workers).
absl::StatusOr<Device*> DeviceOfWorker(const ClusterSpec& cluster, int worker);

// What a worker is told that it computes on when it joins (JobMembership::device): what the cluster
// says of one that others started, on whatever device; "" of one that we start on the device that
// we say.
std::string ExpectedDevice(const WorkerSpec& worker);

// Whether the workers of this machine that we would start have the cards that the profile was
// measured with, before anything starts: CheckProfiledCard. `describe` is DescribeDevice; "" = such
// a device is not here. REQUIRES: the profile fits the cluster.
absl::Status CheckLocalCards(
    const ClusterProfile& profile, const ClusterSpec& cluster,
    absl::FunctionRef<std::string(DeviceKind, int)> describe = DescribeDevice);

// The same of workers that have joined, by rank. Another driver is a warning in the log.
absl::Status CheckJoinedCards(const ClusterProfile& profile, const ClusterSpec& cluster,
                              const Plan& plan, const std::vector<WorkerInfo>& workers);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_RANK_DEVICE_H_
