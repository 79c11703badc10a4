// Measures how much computing and an overlapping collective slow each other down.
#ifndef WEFT_TRAINING_CALIBRATION_CONTENTION_PROBE_H_
#define WEFT_TRAINING_CALIBRATION_CONTENTION_PROBE_H_

#include "absl/status/statusor.h"
#include "placement/cost/cluster_profile.h"
#include "training/calibration/probe_session.h"

namespace weft {

// LinkProfile::contention of two workers of a session, measured for about `seconds`: products
// alone, an all-reduce alone, and both at once, as gradients are summed beside the backward pass.
// Of the time that they overlap, what both took longer than the longer one: in [0, 1]. `device` is
// that of worker `a`, `exchange_bytes_per_second` LinkProfile's of the two.
absl::StatusOr<double> ProbeContention(ProbeSession& session, int a, int b,
                                       const DeviceProfile& device,
                                       double exchange_bytes_per_second, double seconds);

}  // namespace weft

#endif  // WEFT_TRAINING_CALIBRATION_CONTENTION_PROBE_H_
