#include "placement/partition/partition_memory.h"

#include <map>
#include <utility>

#include "graph/schedule/action_nodes.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class StepLifetimes {
 public:
  explicit StepLifetimes(const Partition& partition) : partition_(partition) {}

  absl::StatusOr<std::vector<BufferLifetime>> Find() {
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
    return std::move(lifetimes_);
  }

 private:
  // `buffers` holds the buffer of each value of this run, by ValueId; -1 = none yet.
  void Run(const Graph& graph, const std::vector<NodeId>& nodes, std::vector<int>& buffers) {
    buffers.resize(graph.value_capacity(), -1);
    std::vector<int64_t>& bytes = bytes_[&graph];
    bytes.resize(graph.value_capacity(), -1);
    for (const NodeId id : nodes) {
      const Node& node = graph.node(id);
      for (const std::vector<ValueId>* values : {&node.inputs, &node.outputs}) {
        for (const ValueId value : *values) Touch(graph, value, bytes, buffers);
      }
      ++now_;
    }
  }

  void Touch(const Graph& graph, ValueId value, std::vector<int64_t>& bytes,
             std::vector<int>& buffers) {
    if (!value.valid()) return;
    const ValueSource source = graph.value(value).source;
    if (source == ValueSource::kVariable || source == ValueSource::kConstant) return;
    int& buffer = buffers[value.value];
    if (buffer < 0) {
      buffer = static_cast<int>(lifetimes_.size());
      int64_t& known = bytes[value.value];
      if (known < 0) known = BytesOf(graph, value);
      lifetimes_.push_back({known, now_, now_, -1});
    }
    lifetimes_[buffer].last = now_;
  }

  const Partition& partition_;
  std::vector<BufferLifetime> lifetimes_;
  std::map<const Graph*, std::vector<int64_t>> bytes_;  // by ValueId; -1: not known yet
  int now_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<BufferLifetime>> LifetimesOfStep(const Partition& partition) {
  return StepLifetimes(partition).Find();
}

int64_t VariableBytes(const Partition& partition) {
  int64_t bytes = 0;
  for (const VariableShard& shard : partition.variables) {
    bytes += DTypeBytes(shard.dtype, shard.local_shape.num_elements());
  }
  return bytes;
}

}  // namespace weft
