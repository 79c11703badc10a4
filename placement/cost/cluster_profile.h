// ClusterProfile: what the workers and links of a cluster do, in seconds: measured by `graph_runner
// calibrate`, or taken from the cluster spec and published specs. Pure data; as a file:
// placement/cost/profile_file.h.
#ifndef WEFT_PLACEMENT_COST_CLUSTER_PROFILE_H_
#define WEFT_PLACEMENT_COST_CLUSTER_PROFILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "placement/cost/device_profile.h"

namespace weft {

// The measured or published speeds of a cluster. A value, in the order of its cluster spec.
struct ClusterProfile {
  uint64_t cluster_digest = 0;  // ClusterSpec::Digest; 0 = any cluster of that size
  std::vector<DeviceProfile> devices;
  std::vector<int> device_of;  // by worker: index into `devices`
  std::vector<int> host_of;    // by worker: hosts are numbered as the cluster names them first
  LinkProfile within_host;     // where `links` has no other
  LinkProfile between_hosts;
  std::map<std::pair<int, int>, LinkProfile> links;  // from one host to another, or the same

  int num_workers() const { return static_cast<int>(device_of.size()); }
  const DeviceProfile& device(int worker) const { return devices[device_of[worker]]; }
  const LinkProfile& link(int from_worker, int to_worker) const;
  friend bool operator==(const ClusterProfile&, const ClusterProfile&) = default;
};

// A profile without measurements: WorkerSpec::model and LinkSpec::kind are looked up in the
// published specs (placement/cost/published_specs.h), values that the spec gives itself go
// before, and what nobody says is a common CPU, memory within a host (of GPUs: NVLink where all
// have the same, else PCI Express of the oldest) and 10 Gbit/s Ethernet between hosts.
// InvalidArgument for a model or kind that nobody has published, with those there are.
absl::StatusOr<ClusterProfile> ProfileOfSpec(const ClusterSpec& cluster);

// What it says of these workers alone, for any cluster of as many: a job that has a part of the
// cluster. Indices are those of the cluster, each once. REQUIRES: the profile has them.
ClusterProfile PartOfProfile(const ClusterProfile& profile, const std::vector<int>& workers);

// FailedPrecondition when the profile was measured for another cluster, with both digests.
absl::Status CheckProfileFits(const ClusterProfile& profile, const ClusterSpec& cluster);

// FailedPrecondition when a worker (index of the profile, and its name) has another card than was
// measured, with both and what to do. `card` is as DeviceProfile::card; OK where either is not
// known.
absl::Status CheckProfiledCard(const ClusterProfile& profile, int worker, const std::string& name,
                               const std::string& card);

// A line for people where the card is the one that was measured, and its driver is another: "";
// else what both are.
std::string NoteOnProfiledDriver(const ClusterProfile& profile, int worker, const std::string& name,
                                 const std::string& driver);

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_CLUSTER_PROFILE_H_
