// Measures messages and exchanges between workers, over the transport that jobs use.
#ifndef WEFT_TRAINING_CALIBRATION_LINK_PROBE_H_
#define WEFT_TRAINING_CALIBRATION_LINK_PROBE_H_

#include "absl/status/statusor.h"
#include "placement/cost/cluster_profile.h"
#include "training/calibration/probe_session.h"

namespace weft {

// From `from` to `to`, the others silent: messages there and short answers back, and all-reduces of
// the two. `device` is the receiver's, for what a sum takes beside the exchange.
absl::StatusOr<LinkProfile> ProbeLink(ProbeSession& session, int from, int to,
                                      const DeviceProfile& device, double seconds);

}  // namespace weft

#endif  // WEFT_TRAINING_CALIBRATION_LINK_PROBE_H_
