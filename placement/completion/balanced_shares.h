// How many of a step's micro-batches each replica runs, so that the slowest ends early.
#ifndef WEFT_PLACEMENT_COMPLETION_BALANCED_SHARES_H_
#define WEFT_PLACEMENT_COMPLETION_BALANCED_SHARES_H_

#include <vector>

namespace weft {

// Of a replica: the slowest of its workers.
struct ReplicaSpeed {
  double micro_batch_seconds = 0;
  double step_seconds = 0;  // once per step, whatever the micro-batches
};

// The micro-batches of each replica (Plan::shares): at least one each, `micro_batches` in all, the
// time of the slowest replica as short as it can be. Each goes to who would be done with it first
// (the lower replica of equals), which is optimal, as a replica's time only grows with its part.
// REQUIRES: as many micro-batches as replicas.
std::vector<int> BalanceShares(const std::vector<ReplicaSpeed>& replicas, int micro_batches);

// Until the slowest replica is done with its part.
double SecondsWithShares(const std::vector<ReplicaSpeed>& replicas, const std::vector<int>& shares);

}  // namespace weft

#endif  // WEFT_PLACEMENT_COMPLETION_BALANCED_SHARES_H_
