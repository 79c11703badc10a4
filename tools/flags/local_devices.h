// --device: the devices of the workers on this machine.
#ifndef WEFT_TOOLS_FLAGS_LOCAL_DEVICES_H_
#define WEFT_TOOLS_FLAGS_LOCAL_DEVICES_H_

#include <string>

#include "absl/status/status.h"
#include "graph/cluster_spec.h"

namespace weft {

// Gives each worker of the cluster its device. `text` has one for all or one for each, joined by
// commas: "cuda", "cuda:0,cuda:0", "cuda,cpu". A device without a number is the next of its kind,
// counted from 0; but there is one CPU. Empty: the cluster stays as it is. InvalidArgument where
// a name is none, or the list is neither one nor as long as there are workers.
absl::Status SetLocalDevices(const std::string& text, ClusterSpec& cluster);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_LOCAL_DEVICES_H_
