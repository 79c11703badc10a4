// Measures ops of many sizes on workers, independent of a model.
#ifndef WEFT_TRAINING_CALIBRATION_DEVICE_PROBE_H_
#define WEFT_TRAINING_CALIBRATION_DEVICE_PROBE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "placement/cost/cluster_profile.h"
#include "training/calibration/probe_session.h"

namespace weft {

// Of each worker, while all of them work: rates of every family by size, overhead per node. What it
// does not measure (wake-up, memory) is as in `start`, by worker. `threads` by worker.
absl::StatusOr<std::vector<DeviceProfile>> ProbeDevices(ProbeSession& session,
                                                        const std::vector<DeviceProfile>& start,
                                                        const std::vector<int>& threads,
                                                        double seconds);

}  // namespace weft

#endif  // WEFT_TRAINING_CALIBRATION_DEVICE_PROBE_H_
