// How a global batch is cut into the job's micro-batches, and who runs which. Internal to
// placement/.
#ifndef WEFT_PLACEMENT_GRAPH_VIEWS_MICRO_BATCHES_H_
#define WEFT_PLACEMENT_GRAPH_VIEWS_MICRO_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "graph/plan.h"

namespace weft {

// How a global batch is cut into micro-batches, in samples.
struct BatchSplit {
  // All micro-batches of the step, none of them empty, the first ones one sample longer. `graph`
  // indexes `sizes`.
  std::vector<MicroBatch> micro_batches;
  // The distinct sample counts, longest first.
  std::vector<int64_t> sizes;

  int total() const { return static_cast<int>(micro_batches.size()); }
  // Those that the plan gives a replica, in order; none when there are fewer than replicas.
  std::vector<MicroBatch> OfReplica(const Plan& plan, int replica) const;
};

// Cuts `global_batch` samples into `wanted` micro-batches, or into one per sample when there are
// fewer samples (a short last batch): that depends on the job alone, so strict results do not
// depend on who runs what. InvalidArgument unless both are at least 1.
absl::StatusOr<BatchSplit> SplitBatch(int64_t global_batch, int wanted);

}  // namespace weft

#endif  // WEFT_PLACEMENT_GRAPH_VIEWS_MICRO_BATCHES_H_
