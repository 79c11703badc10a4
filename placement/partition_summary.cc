// Summarize: what a partition costs, for people.
#include <algorithm>
#include <map>

#include "graph/op_schema.h"
#include "graph/schedule/action_nodes.h"
#include "graph/schedule/collective_schedule.h"
#include "graph/schedule/memory_plan.h"
#include "placement/graph_node_view.h"
#include "placement/planner.h"
#include "placement/recomputation.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

bool IsCommunication(const Node& node) {
  return node.schema != nullptr && node.schema->op_class() == OpClass::kCommunication;
}

bool Computes(const Node& node) { return !IsCommunication(node); }

// Of the nodes that `counts` says.
double FlopsOf(const Graph& graph, bool (*counts)(const Node&)) {
  double flops = 0;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (!counts(node)) continue;
    const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(graph, node);
    if (!view.ok()) continue;
    if (node.schema != nullptr && node.schema->cost()) {
      flops += node.schema->cost()(*view).flops;
    } else if (!node.outputs.empty()) {
      flops += static_cast<double>(view->OutputShape(0).num_elements());
    }
  }
  return flops;
}

// Bytes that this rank sends around the ring to gather or scatter shards, which may be uneven.
double RingBytesOf(const Graph& graph, const Node& node) {
  const bool gathers = node.op == "AllGather";
  const Shape whole = ShapeOf(graph, gathers ? node.outputs[0] : node.inputs[0]);
  const int axis = static_cast<int>(node.attributes.Int("dim", 0));
  const int64_t rest = whole.dim(axis) / node.attributes.Int("blocks", 1);
  std::vector<int64_t> counts;
  for (const int64_t size : node.attributes.Ints("sizes")) {
    counts.push_back(rest == 0 ? 0 : whole.num_elements() / rest * size);
  }
  const int member = static_cast<int>(node.attributes.Int("index", 0));
  const CollectiveSchedule schedule =
      gathers ? RingAllGather(counts, member) : RingReduceScatter(counts, member);
  return static_cast<double>(
      DTypeBytes(graph.value(node.inputs[0]).type.dtype, schedule.elements_sent()));
}

// Bytes that one run of the graph sends: a ring's share for collectives.
double SentBytesOf(const Graph& graph) {
  double bytes = 0;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (!IsCommunication(node)) continue;
    double operands = 0;
    for (const ValueId input : node.inputs) {
      if (input.valid()) operands += static_cast<double>(BytesOf(graph, input));
    }
    const double members =
        std::max<double>(1, static_cast<double>(node.attributes.Ints("group").size()));
    if (node.op == "Send") bytes += operands;
    if (node.op == "AllReduce") bytes += 2 * operands * (members - 1) / members;
    if (node.op == "AllGather" || node.op == "ReduceScatter") bytes += RingBytesOf(graph, node);
  }
  return bytes;
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
  double sent = SentBytesOf(partition.begin) + SentBytesOf(partition.end);
  summary.flops = FlopsOf(partition.begin, Computes) + FlopsOf(partition.end, Computes);
  summary.nodes = partition.begin.num_nodes() + partition.end.num_nodes();
  if (!partition.micro.empty()) summary.nodes += partition.micro.front().num_nodes();
  for (const auto& [graph, count] : runs) {
    summary.flops += count * FlopsOf(partition.micro[graph], Computes);
    summary.recomputed_flops += count * FlopsOf(partition.micro[graph], IsRecomputed);
    sent += count * SentBytesOf(partition.micro[graph]);
  }
  summary.sent_bytes = static_cast<int64_t>(sent);
  for (const VariableShard& shard : partition.variables) {
    const int64_t elements = shard.local_shape.num_elements();
    if (shard.trainable) summary.parameters += elements;
    summary.variable_bytes += DTypeBytes(shard.dtype, elements);
  }
  WEFT_ASSIGN_OR_RETURN(summary.arena_bytes, StepLifetimes(partition).ArenaBytes());
  return summary;
}

}  // namespace weft
