// Graph::TopologicalOrder: Kahn's algorithm, with a heap that makes the order unique.
#include <algorithm>
#include <functional>
#include <queue>

#include "absl/strings/str_cat.h"
#include "graph/graph.h"

namespace weft {
namespace {

// The node that computes `input`, or none. Tolerates broken graphs: the verifier orders them too.
NodeId ProducerOf(const Graph& graph, ValueId input) {
  if (!input.valid() || input.value >= graph.value_capacity() || !graph.is_live(input)) return {};
  const ValueDef& value = graph.value(input);
  if (value.source != ValueSource::kNode || !value.producer.valid()) return {};
  if (value.producer.value >= graph.node_capacity() || !graph.is_live(value.producer)) return {};
  return value.producer;
}

// Edges from producers to consumers, the consumers of node n at [begin[n], begin[n + 1]).
struct Consumers {
  std::vector<int32_t> begin;
  std::vector<NodeId> nodes;
};

Consumers BuildConsumers(const Graph& graph, const std::vector<NodeId>& ids) {
  Consumers consumers;
  consumers.begin.resize(graph.node_capacity() + 2);
  for (const NodeId id : ids) {
    for (const ValueId input : graph.node(id).inputs) {
      const NodeId producer = ProducerOf(graph, input);
      if (producer.valid()) ++consumers.begin[producer.value + 2];
    }
  }
  for (size_t i = 2; i < consumers.begin.size(); ++i) consumers.begin[i] += consumers.begin[i - 1];
  consumers.nodes.resize(consumers.begin.back());
  for (const NodeId id : ids) {
    for (const ValueId input : graph.node(id).inputs) {
      const NodeId producer = ProducerOf(graph, input);
      if (producer.valid()) consumers.nodes[consumers.begin[producer.value + 1]++] = id;
    }
  }
  return consumers;
}

// `waiting` has a node count > 0 for nodes on cycles and behind them. Walking from producer to
// producer among them must come back to a node: that one is on a cycle.
absl::Status CycleError(const Graph& graph, const std::vector<int32_t>& waiting) {
  NodeId at;
  for (const NodeId id : graph.node_ids()) {
    if (waiting[id.value] > 0) {
      at = id;
      break;
    }
  }
  std::vector<NodeId> path;
  std::vector<int32_t> position(graph.node_capacity(), -1);
  while (position[at.value] < 0) {
    position[at.value] = static_cast<int32_t>(path.size());
    path.push_back(at);
    for (const ValueId input : graph.node(at).inputs) {
      const NodeId producer = ProducerOf(graph, input);
      if (!producer.valid() || waiting[producer.value] == 0) continue;
      at = producer;
      break;
    }
  }
  path.erase(path.begin(), path.begin() + position[at.value]);
  std::reverse(path.begin(), path.end());  // now in the direction of the data
  constexpr size_t kShown = 6;
  std::string text;
  for (size_t i = 0; i < std::min(path.size(), kShown); ++i) {
    absl::StrAppend(&text, "'", graph.node(path[i]).name, "' (", graph.node(path[i]).op, ") -> ");
  }
  if (path.size() > kShown) absl::StrAppend(&text, "... ", path.size() - kShown, " more -> ");
  return absl::InvalidArgumentError(absl::StrCat("the graph has a cycle: ", text, "'",
                                                 graph.node(path.front()).name,
                                                 "'; a graph must be acyclic"));
}

// Whether each producer has a smaller id than what reads it, as after Graph::Compact and mostly
// while nodes are added.
bool IsOrderedById(const Graph& graph, const std::vector<NodeId>& ids) {
  for (const NodeId id : ids) {
    for (const ValueId input : graph.node(id).inputs) {
      const NodeId producer = ProducerOf(graph, input);
      if (producer.valid() && producer.value >= id.value) return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<NodeId>> Graph::TopologicalOrder() const {
  std::vector<NodeId> ids = node_ids();
  if (IsOrderedById(*this, ids)) return ids;  // the smallest id is always ready
  const Consumers consumers = BuildConsumers(*this, ids);
  std::vector<int32_t> waiting(node_capacity());  // inputs whose producers have not come yet
  for (const NodeId id : ids) {
    for (const ValueId input : node(id).inputs) {
      if (ProducerOf(*this, input).valid()) ++waiting[id.value];
    }
  }
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  for (const NodeId id : ids) {
    if (waiting[id.value] == 0) ready.push(id);
  }
  std::vector<NodeId> order;
  order.reserve(ids.size());
  while (!ready.empty()) {
    const NodeId id = ready.top();
    ready.pop();
    order.push_back(id);
    for (int32_t i = consumers.begin[id.value]; i < consumers.begin[id.value + 1]; ++i) {
      if (--waiting[consumers.nodes[i].value] == 0) ready.push(consumers.nodes[i]);
    }
  }
  if (order.size() < ids.size()) return CycleError(*this, waiting);
  return order;
}

}  // namespace weft
