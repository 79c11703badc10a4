// Calibration: measures the workers and links of a cluster, and the nodes of jobs on them.
#ifndef WEFT_TRAINING_CALIBRATION_CALIBRATION_H_
#define WEFT_TRAINING_CALIBRATION_CALIBRATION_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "placement/cost/cluster_profile.h"
#include "platform/clock.h"
#include "training/calibration/probe_session.h"
#include "training/job/job.h"

namespace weft {

// What Calibrate measures.
struct CalibrationOptions {
  // Plans of which every node is measured, each a whole job. Borrowed.
  std::vector<const PreparedJob*> jobs;
  // About so long for devices, for each link, and for each job.
  double device_seconds = 1;
  double link_seconds = 1;
  double job_seconds = 1;
  Clock* clock = nullptr;  // null: the machine's
  // Told what is measured next: "links of hosts 0 and 1".
  std::function<void(const std::string&)> progress = nullptr;
};

// The workers of the session are those of the cluster, in its order. Each has a device of its own
// in the profile. What the spec says of memory and rails goes before what is measured. A pair of
// hosts is measured between their first workers, a host between its first two. An op that was
// measured on one worker alone is, on another, as much slower as the ops that both ran.
absl::StatusOr<ClusterProfile> Calibrate(ProbeSession& session, const ClusterSpec& cluster,
                                         const CalibrationOptions& options);

// Adds the ops of an earlier calibration of the same cluster that `profile` has not. Gives the
// names of devices of which nothing is kept, since they have another card now
// (DeviceProfile::card).
std::vector<std::string> KeepOps(const ClusterProfile& earlier, ClusterProfile& profile);

}  // namespace weft

#endif  // WEFT_TRAINING_CALIBRATION_CALIBRATION_H_
