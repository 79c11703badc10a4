// Cluster profiles as YAML: what `graph_runner calibrate` writes.
#ifndef WEFT_PLACEMENT_COST_PROFILE_FILE_H_
#define WEFT_PLACEMENT_COST_PROFILE_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "placement/cost/cluster_profile.h"

namespace weft {

// Six digits of every number. Seconds, bytes and FLOPs without units:
//
//   version: 1
//   cluster_digest: 8d8f0a53a1b2c3d4
//   devices:
//     - name: "worker:0"
//       source: measured
//       threads: 1
//       card: "NVIDIA L4, compute capability 8.9"   # of a GPU, with its driver: "580.65.06"
//       node: 3e-07
//       contraction: {float32: [[8192, 5e+09], [2.6e+08, 9e+10]]}   # [FLOPs, FLOP/s]
//       elementwise: [[12, 4e+07], [1.2e+08, 2e+10]]                # [bytes, bytes/s]
//       movement: [[8192, 6e+09]]
//       ops: [{op: "Relu float32[64,512]", key: 01a2b3c4d5e6f708, threads: 1, seconds: 9.3e-06,
//              kind: 8f6e5d4c3b2a1908, type: float32, flops: 32768, bytes: 262144,
//              dims: [64, 512, 64, 512]}]    # from kind on: without them it says nothing of others
//   workers: [0, 0]          # the device of each
//   hosts: [0, 0]            # and its host
//   links:
//     - {within: "*", latency: 6e-05, rate: 2.4e+09, source: measured}
//     - {from: "*", to: "*", latency: 8e-05, rate: 1.2e+09}
//     - {from: 0, to: 1, latency: 5e-05, rate: 1.1e+09}
std::string ProfileToYaml(const ClusterProfile& profile);

// InvalidArgument "profile.yaml:3:7: ..." for what is unknown, missing or out of range.
absl::StatusOr<ClusterProfile> ParseProfileFile(const std::string& text,
                                                const std::string& file_name);

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_PROFILE_FILE_H_
