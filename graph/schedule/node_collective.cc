#include "graph/schedule/node_collective.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/schedule/all_reduce_choice.h"
#include "platform/status_macros.h"
#include "tensor/buffer.h"

namespace weft {
namespace {

Shape LocalShape(const Graph& graph, ValueId value) {
  return graph.value(value).type.shape.ToConcrete().value_or(Shape());
}

ShardedDim ReadDim(const Node& node, const std::string& prefix) {
  return {static_cast<int>(node.attributes.Int(prefix + "dim", 0)),
          node.attributes.Int(prefix + "blocks", 1), node.attributes.Ints(prefix + "sizes")};
}

// The sums of micro-batches that every member of an ordered-tree all-reduce holds: it runs those
// from its begin to the next member's, or [V m / n, V (m + 1) / n) where the node names none
// (graph/plan.h), and finishes their aligned subtrees.
std::vector<std::vector<LeafRange>> MemberBlocks(const Node& node, int members, int total) {
  std::vector<int64_t> begins = node.attributes.Ints("member_begins");
  if (static_cast<int>(begins.size()) != members) {
    begins.clear();
    for (int64_t m = 0; m < members; ++m) begins.push_back(total * m / members);
  }
  begins.push_back(total);
  std::vector<std::vector<LeafRange>> blocks;
  for (size_t m = 0; m + 1 < begins.size(); ++m) {
    blocks.push_back(
        AlignedBlocks(static_cast<int>(begins[m]), static_cast<int>(begins[m + 1]), total));
  }
  return blocks;
}

absl::StatusOr<CollectiveSchedule> AllReduceOfNode(const Graph& graph, const Node& node,
                                                   DType dtype, int member) {
  AllReduceTask task;
  task.members = static_cast<int>(node.attributes.Ints("group").size());
  task.element_bytes = DTypeBytes(dtype, 1);
  WEFT_ASSIGN_OR_RETURN(task.elements, AllReduceBlockElements(graph, node));
  for (const int64_t host : node.attributes.Ints("hosts")) {
    task.hosts.push_back(static_cast<int>(host));
  }
  const std::string algorithm = node.attributes.String("algorithm", "auto");
  if (algorithm == "ordered_tree") {
    const int total = static_cast<int>(node.attributes.Int("total_blocks", task.members));
    return OrderedTreeAllReduce(MemberBlocks(node, task.members, total), member, total,
                                task.elements);
  }
  return AllReduceBy(ParseAllReduceAlgorithm(algorithm).value_or(FastestAllReduce(task)), task,
                     member);
}

absl::StatusOr<CollectiveSchedule> BroadcastOfNode(const Graph& graph, const Node& node,
                                                   int member) {
  const std::vector<int64_t> group = node.attributes.Ints("group");
  const auto root = std::find(group.begin(), group.end(), node.attributes.Int("root", group[0]));
  if (root == group.end()) return absl::InternalError("the root is not in the group");
  return TreeBroadcast(static_cast<int>(group.size()), member,
                       static_cast<int>(root - group.begin()),
                       LocalShape(graph, node.outputs[0]).num_elements());
}

absl::StatusOr<CollectiveSchedule> ScheduleOfNode(const Graph& graph, const Node& node, DType dtype,
                                                  int member) {
  switch (KindOf(node)) {
    case CommunicationKind::kAllReduce:
      return AllReduceOfNode(graph, node, dtype, member);
    case CommunicationKind::kBroadcast:
      return BroadcastOfNode(graph, node, member);
    case CommunicationKind::kAllGather:
      return RingAllGather(GatheredDim(node).Counts(LocalShape(graph, node.outputs[0])), member);
    case CommunicationKind::kReduceScatter:
      return RingReduceScatter(GatheredDim(node).Counts(LocalShape(graph, node.inputs[0])), member);
    case CommunicationKind::kAllToAll:
      return PairwiseAllToAll(PieceCounts(node, WholeOfAllToAll(graph, node)), member);
    default:
      break;
  }
  return absl::InternalError(absl::StrCat("'", node.op, "' is no collective"));
}

}  // namespace

std::vector<int64_t> ShardedDim::Counts(const Shape& whole) const {
  const int64_t others = whole.ProductOf(0, axis) * whole.ProductOf(axis + 1, whole.rank());
  std::vector<int64_t> counts;
  for (const int64_t size : sizes) counts.push_back(others * blocks * size);
  return counts;
}

int64_t NodeCollective::sent_bytes() const { return DTypeBytes(dtype, schedule.elements_sent()); }

absl::StatusOr<int64_t> AllReduceBlockElements(const Graph& graph, const Node& node) {
  DType dtype = DType::kInvalid;
  int64_t bytes = 0;
  for (const ValueId output : node.outputs) {
    const DType own = graph.value(output).type.dtype;
    if (dtype != DType::kInvalid && own != dtype) {
      return absl::InternalError("an all-reduce mixes element types");
    }
    dtype = own;
    const int64_t alignment = static_cast<int64_t>(kAlignment);
    const int64_t tensor = DTypeBytes(dtype, LocalShape(graph, output).num_elements());
    bytes += (tensor + alignment - 1) / alignment * alignment;
  }
  return dtype == DType::kInvalid ? 0 : bytes / DTypeBytes(dtype, 1);
}

ShardedDim GatheredDim(const Node& node) { return ReadDim(node, ""); }
ShardedDim ScatteredDim(const Node& node) { return ReadDim(node, "split_"); }

Shape WholeOfAllToAll(const Graph& graph, const Node& node) {
  const Shape shard = LocalShape(graph, node.inputs[0]);
  const ShardedDim gathered = GatheredDim(node);
  std::vector<int64_t> dims(shard.dims().begin(), shard.dims().end());
  dims[gathered.axis] =
      gathered.blocks * std::accumulate(gathered.sizes.begin(), gathered.sizes.end(), int64_t{0});
  return Shape(dims);
}

std::vector<std::vector<int64_t>> PieceCounts(const Node& node, const Shape& whole) {
  const ShardedDim gathered = GatheredDim(node);
  const ShardedDim scattered = ScatteredDim(node);
  int64_t others = 1;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    if (axis != gathered.axis && axis != scattered.axis) others *= whole.dim(axis);
  }
  std::vector<std::vector<int64_t>> counts;
  for (const int64_t from : gathered.sizes) {
    counts.emplace_back();
    for (const int64_t to : scattered.sizes) {
      counts.back().push_back(others * gathered.blocks * from * scattered.blocks * to);
    }
  }
  return counts;
}

absl::StatusOr<NodeCollective> CollectiveOfNode(const Graph& graph, const Node& node, RankId rank) {
  const std::vector<int64_t> group = node.attributes.Ints("group");
  const auto it = std::find(group.begin(), group.end(), rank.value);
  if (it == group.end()) {
    return absl::InternalError(
        absl::StrCat("rank ", rank.value, " runs a collective of a group it is not in"));
  }
  NodeCollective collective;
  collective.member = static_cast<int>(it - group.begin());
  collective.dtype = graph.value(node.outputs[0]).type.dtype;
  WEFT_ASSIGN_OR_RETURN(collective.schedule,
                        ScheduleOfNode(graph, node, collective.dtype, collective.member));
  return collective;
}

}  // namespace weft
