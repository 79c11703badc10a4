#include "placement/partition/partition_memory.h"

#include <map>
#include <utility>

#include "graph/op_schema.h"
#include "graph/schedule/action_nodes.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class StepLifetimes {
 public:
  StepLifetimes(const Partition& partition, const WorkspaceBytesFn& workspace)
      : partition_(partition), workspace_(workspace) {}

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
    if (workspace_ != nullptr) MergeInPlace();
    return std::move(lifetimes_);
  }

 private:
  // An output that may be written over an input, when it is the last to read that.
  struct InPlace {
    int time;
    int input;   // into lifetimes_
    int output;  // likewise
  };

  void FindInPlace(const Node& node, const std::vector<int>& buffers) {
    if (node.schema == nullptr) return;
    for (const auto& [from, to] : node.schema->in_place()) {
      if (from >= static_cast<int>(node.inputs.size()) ||
          to >= static_cast<int>(node.outputs.size()) || !node.inputs[from].valid() ||
          !node.outputs[to].valid()) {
        continue;
      }
      const int input = buffers[node.inputs[from].value];
      const int output = buffers[node.outputs[to].value];
      if (input >= 0 && output >= 0) in_place_.push_back({now_, input, output});
    }
  }

  void MergeInPlace() {
    std::vector<int> root(lifetimes_.size());
    for (size_t i = 0; i < root.size(); ++i) root[i] = static_cast<int>(i);
    for (const InPlace& candidate : in_place_) {
      const int at = root[candidate.input];
      BufferLifetime& input = lifetimes_[at];
      BufferLifetime& output = lifetimes_[candidate.output];
      const bool is_last = input.last == candidate.time && output.first == candidate.time;
      if (!is_last || root[candidate.output] != candidate.output || input.bytes != output.bytes) {
        continue;
      }
      input.last = output.last;
      output.bytes = 0;
      root[candidate.output] = at;
    }
  }

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
      if (workspace_ != nullptr) {
        FindInPlace(node, buffers);
        lifetimes_.push_back({workspace_(graph, node), now_, now_, -1});
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
  const WorkspaceBytesFn& workspace_;
  std::vector<BufferLifetime> lifetimes_;
  std::map<const Graph*, std::vector<int64_t>> bytes_;  // by ValueId; -1: not known yet
  std::vector<InPlace> in_place_;
  int now_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<BufferLifetime>> LifetimesOfStep(const Partition& partition,
                                                            const WorkspaceBytesFn& workspace) {
  return StepLifetimes(partition, workspace).Find();
}

int64_t VariableBytes(const Partition& partition) {
  int64_t bytes = 0;
  for (const VariableShard& shard : partition.variables) {
    bytes += DTypeBytes(shard.dtype, shard.local_shape.num_elements());
  }
  return bytes;
}

}  // namespace weft
