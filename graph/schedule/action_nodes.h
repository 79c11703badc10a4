// Which nodes of a partition each of its actions runs, and in which order. Executor, simulator and
// memory estimates share it, so that they cannot differ.
#ifndef WEFT_GRAPH_SCHEDULE_ACTION_NODES_H_
#define WEFT_GRAPH_SCHEDULE_ACTION_NODES_H_

#include <map>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/partition.h"

namespace weft {

// By NodeId: true for the backward nodes that other ranks wait for, that is all communication of
// the backward phase and what it depends on there. The rest, weight gradients above all, can wait.
// Follows from the graph alone, so all ranks of a tensor-parallel group split alike.
std::vector<bool> AwaitedBackwardNodes(const Graph& micro);

// The nodes of each action of a partition, in order of execution. Immutable after Create.
class ActionNodes {
 public:
  // The partition is only read here. InvalidArgument when an action names a micro-batch that is not
  // there, or when no action runs some node of a micro graph that is in use.
  static absl::StatusOr<ActionNodes> Create(const Partition& partition);

  // In order of execution, ids of the begin graph, the end graph or the micro graph of the action's
  // micro-batch. Empty for an action that the partition does not have.
  const std::vector<NodeId>& Of(const Action& action) const;

 private:
  // Kind, micro graph (0 for begin and end), chunk.
  using Key = std::tuple<Action::Kind, int, int>;
  Key KeyOf(const Action& action) const;

  std::vector<int> graph_of_;  // by micro-batch
  std::map<Key, std::vector<NodeId>> nodes_;
};

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_ACTION_NODES_H_
