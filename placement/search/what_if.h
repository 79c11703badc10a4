// A cluster as it would be: what `plan --what-if` asks about.
#ifndef WEFT_PLACEMENT_SEARCH_WHAT_IF_H_
#define WEFT_PLACEMENT_SEARCH_WHAT_IF_H_

#include <string>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"

namespace weft {

// "nodes=16,workers=8,link=25Gbit,latency=5us,memory=80GiB,model=A100-80GB", any of them:
//   nodes    so many hosts, each as the first one
//   workers  so many on each host, each as its first one
//   link     bandwidth between hosts ("/s" may be left out); latency likewise
//   memory   of each worker
//   model    of each worker's device, with published specs
// InvalidArgument naming the key, with a suggestion, or the value.
absl::StatusOr<ClusterSpec> ClusterWhatIf(const ClusterSpec& cluster, const std::string& text);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_WHAT_IF_H_
