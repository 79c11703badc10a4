// Measures ops of many sizes on workers, independent of a model.
#ifndef WEFT_TRAINING_CALIBRATION_DEVICE_PROBE_H_
#define WEFT_TRAINING_CALIBRATION_DEVICE_PROBE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "placement/cost/cluster_profile.h"
#include "training/calibration/probe_session.h"

namespace weft {

// A worker to be probed.
struct ProbedWorker {
  DeviceProfile start;  // what is known of it, and what is not measured here (wake-up, memory)
  int threads = 1;
  // Its device has memory of its own (probe_sizes.h), of so many bytes; 0 = no limit is known.
  bool is_card = false;
  int64_t card_bytes = 0;
};

// Of each worker, while all of them work: rates of every family by size, overhead per node. By
// rank. Programs for cards grow until the next would take too long for `seconds`, or more than a
// quarter of a card's memory.
absl::StatusOr<std::vector<DeviceProfile>> ProbeDevices(ProbeSession& session,
                                                        const std::vector<ProbedWorker>& workers,
                                                        double seconds);

}  // namespace weft

#endif  // WEFT_TRAINING_CALIBRATION_DEVICE_PROBE_H_
