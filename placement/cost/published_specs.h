// Published specs of common devices and links, for clusters that nobody has measured.
#ifndef WEFT_PLACEMENT_COST_PUBLISHED_SPECS_H_
#define WEFT_PLACEMENT_COST_PUBLISHED_SPECS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "placement/cost/device_profile.h"
#include "tensor/device.h"

namespace weft {

// A device by the name that WorkerSpec::model gives it, upper or lower case: "A100-80GB". Its rates
// are its data sheet's peaks times the share of them that a node of a size attains: an assumption
// for want of a measurement, stated in the profile's source. InvalidArgument with the names there
// are.
absl::StatusOr<DeviceProfile> PublishedDevice(const std::string& model);
// A processor of which nothing is known, `threads` of its threads.
DeviceProfile CommonCpu(int threads);
// A GPU of which nothing is known: the smallest of those published.
DeviceProfile CommonGpu();

// A link by the name that LinkSpec::kind gives it: "nvlink3", "infiniband-hdr", "ethernet-25g".
absl::StatusOr<LinkProfile> PublishedLink(const std::string& kind);

// Names, in the order of the tables.
std::vector<std::string> PublishedDeviceNames();
std::vector<std::string> PublishedLinkNames();

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_PUBLISHED_SPECS_H_
