#include "placement/completion/balanced_shares.h"

#include <algorithm>
#include <cstddef>

namespace weft {
namespace {

double SecondsOf(const ReplicaSpeed& replica, int micro_batches) {
  return replica.step_seconds + micro_batches * replica.micro_batch_seconds;
}

}  // namespace

std::vector<int> BalanceShares(const std::vector<ReplicaSpeed>& replicas, int micro_batches) {
  std::vector<int> shares(replicas.size(), 1);
  for (int left = micro_batches - static_cast<int>(replicas.size()); left > 0; --left) {
    size_t best = 0;
    for (size_t i = 1; i < replicas.size(); ++i) {
      const bool is_first =
          SecondsOf(replicas[i], shares[i] + 1) < SecondsOf(replicas[best], shares[best] + 1);
      if (is_first) best = i;
    }
    ++shares[best];
  }
  return shares;
}

double SecondsWithShares(const std::vector<ReplicaSpeed>& replicas,
                         const std::vector<int>& shares) {
  double slowest = 0;
  for (size_t i = 0; i < replicas.size(); ++i) {
    slowest = std::max(slowest, SecondsOf(replicas[i], shares[i]));
  }
  return slowest;
}

}  // namespace weft
