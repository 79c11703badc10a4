// The collective that a node of a rank's graph stands for: what the executor runs, and from which
// placement counts what will be sent. One function for both, so that they cannot differ.
#ifndef WEFT_GRAPH_SCHEDULE_NODE_COLLECTIVE_H_
#define WEFT_GRAPH_SCHEDULE_NODE_COLLECTIVE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/ids.h"
#include "graph/schedule/collective_schedule.h"
#include "tensor/dtype.h"

namespace weft {

// How a dimension of a tensor, seen as (blocks rest), is cut: member k of a group has sizes[k] of
// rest.
struct ShardedDim {
  int axis = 0;
  int64_t blocks = 1;
  std::vector<int64_t> sizes;
  // Elements of each member's shard of `whole`.
  std::vector<int64_t> Counts(const Shape& whole) const;
};

// This rank's part of the collective that a node stands for.
struct NodeCollective {
  DType dtype = DType::kInvalid;
  int member = 0;  // this rank's position in the group
  CollectiveSchedule schedule;
  int64_t sent_bytes() const;
};

// For AllReduce, AllGather, ReduceScatter, Broadcast and AllToAll with local, concrete shapes.
// Internal when `rank` is not in the node's group or the op is none of these.
//   AllReduce      buffer 0: all tensors one after the other, each padded to 64 bytes; under
//                  ordered_tree one such block after the other
//   AllGather      buffer 0: the members' shards one after the other
//   ReduceScatter  the same
//   AllToAll       buffer 1: the pieces for each member, buffer 0: those from each
absl::StatusOr<NodeCollective> CollectiveOfNode(const Graph& graph, const Node& node, RankId rank);

// Elements of one block of an AllReduce with its padding. Internal when dtypes differ.
absl::StatusOr<int64_t> AllReduceBlockElements(const Graph& graph, const Node& node);

// The dimension along which AllGather, ReduceScatter and AllToAll (its gathered one) work, and the
// one that AllToAll scatters.
ShardedDim GatheredDim(const Node& node);
ShardedDim ScatteredDim(const Node& node);

// Elements of the pieces that each member of an AllToAll gives each, [from][to], for a tensor of
// the shape `whole`.
std::vector<std::vector<int64_t>> PieceCounts(const Node& node, const Shape& whole);
// The whole tensor of which an AllToAll's input and output are shards.
Shape WholeOfAllToAll(const Graph& graph, const Node& node);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_NODE_COLLECTIVE_H_
