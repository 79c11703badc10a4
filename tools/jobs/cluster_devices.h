// Whether this build can run on the devices that a cluster file names.
#ifndef WEFT_TOOLS_JOBS_CLUSTER_DEVICES_H_
#define WEFT_TOOLS_JOBS_CLUSTER_DEVICES_H_

#include <string>

#include "absl/status/status.h"
#include "graph/cluster_spec.h"

namespace weft {

// The errors of CheckDevice (tensor/lookup/device_lookup.h), with exit code kPlan, where this
// process would start a worker on a device that it cannot use; names worker and host. Workers with
// an address are asked when they join the job. For every command that runs or measures there: never
// another device without a word.
absl::Status CheckClusterDevices(const ClusterSpec& cluster);

// The same as a line for commands that only calculate (plan, simulate); empty where all can run.
std::string NoteOnClusterDevices(const ClusterSpec& cluster);

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_CLUSTER_DEVICES_H_
