// The order of a partition's end graph, and which of its collectives do not wait for it. Executor
// and simulator share it, so that they cannot differ.
#ifndef WEFT_GRAPH_SCHEDULE_END_ORDER_H_
#define WEFT_GRAPH_SCHEDULE_END_ORDER_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/partition.h"

namespace weft {

// All nodes of the end graph in order of execution. The first `before_guard` of them come before
// the guard: all that it depends on, and what stands before the last of these (another rank's guard
// may wait for what it sends), but nothing that makes a variable's new value or reads one. Where
// the partition commits, all communication is among them.
struct EndOrder {
  std::vector<NodeId> nodes;
  size_t before_guard = 0;
};
// Internal when the partition has a guard that its end graph does not have.
absl::StatusOr<EndOrder> OrderOfEnd(const Partition& partition);

// Whether something of the end graph is sent or summed among ranks that rests on a variable's new
// value: its ranks cannot end a step without each other. Internal as above.
absl::StatusOr<bool> UpdatesNeedPeers(const Partition& partition);

// The all-reduces of the end graph that sum nothing but accumulations which nobody else reads. They
// may run beside the micro-batches, in this order, each as soon as its last sum is complete.
absl::StatusOr<std::vector<NodeId>> CollectivesBesideMicroBatches(const Partition& partition);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_END_ORDER_H_
