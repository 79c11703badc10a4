// ClusterSpec: the machines a job may use. Pure data; read from YAML by
// placement/files/plan_file.h.
#ifndef WEFT_GRAPH_CLUSTER_SPEC_H_
#define WEFT_GRAPH_CLUSTER_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/device.h"

namespace weft {

// One worker process and its device. Rank = position in ClusterSpec::workers.
struct WorkerSpec {
  std::string name;  // "worker:0"
  std::string host;  // the host entry it belongs to
  std::string
      address;  // "127.0.0.1:4000", "unix:/path"; empty = started by us on a socket of our own
  DeviceKind device = DeviceKind::kCpu;
  int device_index = 0;
  int64_t memory_bytes = 0;  // 0 = not said
  int threads = 0;           // 0 = cores of the host / workers on it
  // Whose published specs apply: "A100-80GB"; empty = not said.
  std::string model = {};
  friend bool operator==(const WorkerSpec&, const WorkerSpec&) = default;
};

// Between two hosts, both directions, or within one.
struct LinkSpec {
  std::string from;                       // "*" = every host
  std::string to;                         // "*" = every other host; empty: within `from`
  double bandwidth_bytes_per_second = 0;  // 0 = not said
  double latency_seconds = 0;
  // Whose published specs apply: "infiniband-hdr"; empty = not said.
  std::string kind = {};
  int rails = 0;  // network cards per host that work at once; 0 = not said: one
  friend bool operator==(const LinkSpec&, const LinkSpec&) = default;
};

// The workers and links of a cluster, as a cluster file or --local gives them. A value; the order
// of workers is the order of ranks.
struct ClusterSpec {
  std::vector<WorkerSpec> workers;
  std::vector<LinkSpec> links;
  // Workers that compute nothing until one of `workers` is lost, and then take its place: no plan
  // has them, and no digest. Each has an address.
  std::vector<WorkerSpec> spares = {};
  // N workers on this machine, each on a unix socket of our own.
  static ClusterSpec Local(int workers, int threads_each);
  // Hash of everything that a plan depends on; two equal specs have equal digests.
  uint64_t Digest() const;
  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;
};

}  // namespace weft

#endif  // WEFT_GRAPH_CLUSTER_SPEC_H_
