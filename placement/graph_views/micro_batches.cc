#include "placement/graph_views/micro_batches.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {

std::vector<MicroBatch> BatchSplit::OfReplica(const Plan& plan, int replica) const {
  const auto begin = micro_batches.begin();
  return {begin + plan.FirstMicroBatch(replica, total()),
          begin + plan.FirstMicroBatch(replica + 1, total())};
}

absl::StatusOr<BatchSplit> SplitBatch(int64_t global_batch, int wanted) {
  if (global_batch < 1 || wanted < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of ", global_batch, " samples in ", wanted,
                     " micro-batches; expected at least one of both"));
  }
  BatchSplit split;
  const int total = static_cast<int>(std::min<int64_t>(wanted, global_batch));
  int64_t first = 0;
  for (int i = 0; i < total; ++i) {
    const int64_t samples = AxisSharding::ShardRange(global_batch, total, i).count;
    if (split.sizes.empty() || split.sizes.back() != samples) split.sizes.push_back(samples);
    split.micro_batches.push_back({i, first, samples, static_cast<int>(split.sizes.size()) - 1});
    first += samples;
  }
  return split;
}

}  // namespace weft
