// Summarize: what a partition costs, for people.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "graph/schedule/action_nodes.h"
#include "graph/schedule/memory_plan.h"
#include "placement/control_flow_bodies.h"
#include "placement/graph_node_view.h"
#include "placement/planner.h"
#include "placement/recomputation.h"
#include "placement/traffic_prediction.h"
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

// Lifetimes of everything made in the course of a step, in the order of its actions.
class StepLifetimes {
 public:
  explicit StepLifetimes(const Partition& partition) : partition_(partition) {}

  absl::StatusOr<int64_t> ArenaBytes() {
    std::vector<std::vector<int>> buffers(partition_.micro_batches.size());
    std::vector<int> once;
    WEFT_ASSIGN_OR_RETURN(const ActionNodes nodes, ActionNodes::Create(partition_));
    for (const Action& action : partition_.actions) {
      switch (action.kind) {
        case Action::Kind::kBegin:
          Run(partition_.begin, nodes.Of(action), once);
          break;
        case Action::Kind::kUpdate:
          once.clear();
          Run(partition_.end, nodes.Of(action), once);
          break;
        default:
          const int graph = partition_.micro_batches[action.micro_batch].graph;
          Run(partition_.micro[graph], nodes.Of(action), buffers[action.micro_batch]);
      }
    }
    WEFT_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(lifetimes_));
    return plan.arena_bytes;
  }

 private:
  // `buffers` holds the buffer of each value of this run, by ValueId; -1 = none yet.
  void Run(const Graph& graph, const std::vector<NodeId>& nodes, std::vector<int>& buffers) {
    buffers.resize(graph.value_capacity(), -1);
    for (const NodeId id : nodes) {
      const Node& node = graph.node(id);
      for (const std::vector<ValueId>* values : {&node.inputs, &node.outputs}) {
        for (const ValueId value : *values) Touch(graph, value, buffers);
      }
      ++now_;
    }
  }

  void Touch(const Graph& graph, ValueId value, std::vector<int>& buffers) {
    if (!value.valid()) return;
    const ValueSource source = graph.value(value).source;
    if (source == ValueSource::kVariable || source == ValueSource::kConstant) return;
    int& buffer = buffers[value.value];
    if (buffer < 0) {
      buffer = static_cast<int>(lifetimes_.size());
      lifetimes_.push_back({BytesOf(graph, value), now_, now_, -1});
    }
    lifetimes_[buffer].last = now_;
  }

  const Partition& partition_;
  std::vector<BufferLifetime> lifetimes_;
  int now_ = 0;
};

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
    const int64_t elements = shard.local_shape.num_elements();
    if (shard.trainable) summary.parameters += elements;
    summary.variable_bytes += DTypeBytes(shard.dtype, elements);
  }
  WEFT_ASSIGN_OR_RETURN(summary.arena_bytes, StepLifetimes(partition).ArenaBytes());
  return summary;
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
