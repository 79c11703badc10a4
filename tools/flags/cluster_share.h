// The part of a cluster that one of several jobs side by side has.
#ifndef WEFT_TOOLS_FLAGS_CLUSTER_SHARE_H_
#define WEFT_TOOLS_FLAGS_CLUSTER_SHARE_H_

#include <vector>

#include "graph/cluster_spec.h"

namespace weft {

// One of `count` equal shares: `workers` neighbours in the order of the cluster. Workers that are
// left over belong to nobody. A value.
struct WorkerShare {
  int index = 0;    // from 0
  int count = 1;    // shares there are
  int workers = 0;  // of each; 0: all of the cluster's, in the only share
};

// The indices of its workers. REQUIRES: the cluster of `all` workers has as many shares.
std::vector<int> WorkersOf(const WorkerShare& share, int all);

// The share as a cluster of its own, as a cluster file could have it: links of hosts on which it
// has no worker are left out. Workers that do not say their threads get those that they have beside
// all others, where each host has `cores`. Workers that we start are named as if they were alone.
// All workers of one share are the cluster as it is.
ClusterSpec ShareOf(const ClusterSpec& all, const WorkerShare& share, int cores);

// Whether all shares have the same devices with the same threads, in the same places: then it does
// not matter which one a job gets. `share` is any of them.
bool SharesAreAlike(const ClusterSpec& all, WorkerShare share, int cores);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_CLUSTER_SHARE_H_
