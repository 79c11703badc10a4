// Summarize: what a partition costs, for people.
#include "placement/partition/partition_summary.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "graph/schedule/memory_plan.h"
#include "placement/graph_views/control_flow_bodies.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/partition/partition_memory.h"
#include "placement/partition/traffic_prediction.h"
#include "placement/pipeline/recomputation.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

bool Computes(const Node& node) { return !IsCommunication(node); }

Cost CostOfNode(const Graph& graph, const Node& node) {
  const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(graph, node);
  if (!view.ok()) return {};
  if (node.schema != nullptr && node.schema->cost()) return node.schema->cost()(*view);
  Cost cost;
  if (!node.outputs.empty()) cost.flops = static_cast<double>(view->OutputShape(0).num_elements());
  for (const std::vector<ValueId>* values : {&node.inputs, &node.outputs}) {
    for (const ValueId value : *values) {
      if (value.valid()) cost.bytes += static_cast<double>(BytesOf(graph, value));
    }
  }
  return cost;
}

// Of the nodes that `counts` says.
double FlopsOf(const Graph& graph, bool (*counts)(const Node&)) {
  double flops = 0;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (counts(node)) flops += CostOfNode(graph, node).flops;
  }
  return flops;
}

// Calls fn(graph, runs) for each graph of the partition that runs in a step.
template <typename Fn>
void ForEachGraph(const Partition& partition, Fn fn) {
  std::map<int, int> runs;  // of each micro graph
  for (const MicroBatch& micro_batch : partition.micro_batches) ++runs[micro_batch.graph];
  fn(partition.begin, 1);
  for (const auto& [graph, count] : runs) fn(partition.micro[graph], count);
  fn(partition.end, 1);
}

}  // namespace

absl::StatusOr<RankSummary> Summarize(const Partition& partition) {
  RankSummary summary;
  summary.rank = partition.rank;
  std::map<int, int> runs;  // of each micro graph
  for (const MicroBatch& micro_batch : partition.micro_batches) ++runs[micro_batch.graph];
  WEFT_ASSIGN_OR_RETURN(const std::vector<StreamPrediction> streams, PredictTraffic(partition));
  for (const StreamPrediction& stream : streams) summary.sent_bytes += stream.bytes;
  summary.flops = FlopsOf(partition.begin, Computes) + FlopsOf(partition.end, Computes);
  summary.nodes = partition.begin.num_nodes() + partition.end.num_nodes();
  if (!partition.micro.empty()) summary.nodes += partition.micro.front().num_nodes();
  for (const auto& [graph, count] : runs) {
    summary.flops += count * FlopsOf(partition.micro[graph], Computes);
    summary.recomputed_flops += count * FlopsOf(partition.micro[graph], IsRecomputed);
  }
  for (const VariableShard& shard : partition.variables) {
    if (shard.trainable) summary.parameters += shard.local_shape.num_elements();
  }
  summary.variable_bytes = VariableBytes(partition);
  WEFT_ASSIGN_OR_RETURN(const std::vector<BufferLifetime> lifetimes, LifetimesOfStep(partition));
  WEFT_ASSIGN_OR_RETURN(const MemoryPlan arena, PlanMemory(lifetimes));
  summary.arena_bytes = arena.arena_bytes;
  return summary;
}

absl::StatusOr<int64_t> MemoryOfRank(const Partition& partition, int worker,
                                     const RankMemoryFn& rank_memory) {
  if (rank_memory != nullptr) {
    const absl::StatusOr<int64_t> bytes = rank_memory(partition, worker);
    if (bytes.ok()) return bytes;
  }
  WEFT_ASSIGN_OR_RETURN(const RankSummary summary, Summarize(partition));
  return summary.variable_bytes + summary.arena_bytes;
}

namespace {

// The axis along which the value lay split over the tensor axis before it was gathered, or
// exchanged for shards along another one; nullopt: it was not.
std::optional<int> FormerAxis(const Graph& graph, ValueId value) {
  if (!value.valid() || graph.value(value).source != ValueSource::kNode) return std::nullopt;
  const Node& node = graph.node(graph.value(value).producer);
  const CommunicationKind kind = KindOf(node);
  const bool moves_shards =
      kind == CommunicationKind::kAllGather || kind == CommunicationKind::kAllToAll;
  if (!moves_shards) return std::nullopt;
  if (node.attributes.String("axis", "") != MeshAxisName(MeshAxis::kTensor)) return std::nullopt;
  return static_cast<int>(node.attributes.Int("dim", 0));
}

// A parallel factor of a dimension that cannot be split between its elements.
std::optional<UnevenSplit> UnevenFactor(const FactorRule& rule, const std::vector<int>& dimension,
                                        int shards) {
  int64_t elements = 1;
  for (auto factor = dimension.rbegin(); factor != dimension.rend(); ++factor) {
    const Factor& part = rule.factors[*factor];
    const bool is_uneven = part.kind == FactorKind::kParallel && part.size > 1 && elements > 1 &&
                           part.size % shards != 0;
    if (is_uneven) return UnevenSplit{"", part.size, elements, {}, 0};
    elements *= part.size;
  }
  return std::nullopt;
}

// Of one node that reads such values.
std::vector<UnevenSplit> UnevenSplitsOf(const Graph& graph, const Node& node, int shards) {
  std::vector<UnevenSplit> found;
  if (node.schema == nullptr || !node.schema->sharding() || !IsForward(node)) return found;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const std::optional<int> axis = FormerAxis(graph, node.inputs[i]);
    if (!axis.has_value()) continue;
    const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(graph, node);
    if (!view.ok()) return found;
    const absl::StatusOr<FactorRule> rule = node.schema->sharding()(*view);
    if (!rule.ok() || *axis >= static_cast<int>(rule->inputs[i].dims.size())) continue;
    std::optional<UnevenSplit> split = UnevenFactor(*rule, rule->inputs[i].dims[*axis], shards);
    if (!split.has_value()) continue;
    split->op = node.schema->FullName();
    split->nodes.insert(node.name);
    split->bytes = static_cast<double>(BytesOf(graph, node.inputs[i]));
    found.push_back(*std::move(split));
  }
  return found;
}

}  // namespace

std::vector<UnevenSplit> UnevenSplits(const Partition& partition) {
  std::map<std::tuple<std::string, int64_t, int64_t>, UnevenSplit> by_parts;
  if (partition.mesh.tensor == 1) return {};
  ForEachGraph(partition, [&](const Graph& graph, int runs) {
    for (const NodeId id : graph.node_ids()) {
      for (UnevenSplit& split : UnevenSplitsOf(graph, graph.node(id), partition.mesh.tensor)) {
        split.bytes *= runs;
        UnevenSplit& sum = by_parts[{split.op, split.parts, split.elements}];
        split.bytes += sum.bytes;
        split.nodes.merge(sum.nodes);
        sum = std::move(split);
      }
    }
  });
  std::vector<UnevenSplit> splits;
  for (auto& [parts, split] : by_parts) splits.push_back(std::move(split));
  return splits;
}

std::vector<ReplicatedOp> OpsWithoutRule(const Partition& partition) {
  std::map<std::string, ReplicatedOp> by_op;
  if (partition.mesh.tensor == 1) return {};
  ForEachGraph(partition, [&](const Graph& graph, int runs) {
    for (const NodeId id : graph.node_ids()) {
      const Node& node = graph.node(id);
      const OpSchema* schema = node.schema;
      if (schema == nullptr || schema->op_class() != OpClass::kCompute) continue;
      if (schema->sharding() && !HasBody(node)) continue;
      const Cost cost = CostOfNode(graph, node);
      ReplicatedOp& op = by_op[schema->FullName()];
      op.op = schema->FullName();
      op.nodes.insert(node.name);
      op.flops += runs * cost.flops;
      op.bytes += runs * cost.bytes;
    }
  });
  std::vector<ReplicatedOp> ops;
  for (auto& [name, op] : by_op) ops.push_back(std::move(op));
  std::stable_sort(ops.begin(), ops.end(),
                   [](const ReplicatedOp& a, const ReplicatedOp& b) { return a.flops > b.flops; });
  return ops;
}

}  // namespace weft
