// NodeCosts: what nodes take, as a planning graph asks for it. By default the cost model answers;
// who compares with another framework than Weft hands in its own (SearchOptions::node_costs).
#ifndef WEFT_PLACEMENT_SEARCH_NODE_COSTS_H_
#define WEFT_PLACEMENT_SEARCH_NODE_COSTS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/op_schema.h"
#include "placement/cost/cost_model.h"

namespace weft {

// Of the nodes of one graph. Immutable.
class NodeCosts {
 public:
  virtual ~NodeCosts() = default;
  // Of a node of which `shard` is what a rank runs. 0 for what runs no kernel.
  virtual double Seconds(const Node& node, const NodeView& shard, int worker) const = 0;
  // Nodes of one class (node_classes.h) that are sharded alike are asked for once, if this is equal
  // too.
  virtual std::string Kind(const Node& /*node*/) const { return ""; }
  // A forward node that runs once per step, not per micro-batch.
  virtual bool RunsOncePerStep(const Node& /*node*/) const { return false; }
  // Adding a micro-batch's gradients to their sums takes time of its own.
  virtual bool HasAccumulation() const { return true; }
};

struct NodeCostsRequest {
  const Graph& graph;
  const std::vector<std::vector<Graph::Use>>& uses;
  const CostModel& cost;
  const std::vector<int>& threads;  // by worker
  int in_flight = 1;                // micro-batches of which a worker holds the activations
};
using NodeCostsFactory =
    std::function<absl::StatusOr<std::unique_ptr<NodeCosts>>(const NodeCostsRequest&)>;

// As the cost model says. Borrows what the request refers to.
class ModelledNodeCosts final : public NodeCosts {
 public:
  explicit ModelledNodeCosts(const NodeCostsRequest& request) : request_(request) {}
  double Seconds(const Node& /*node*/, const NodeView& shard, int worker) const override {
    return request_.cost.NodeSeconds(shard, worker, request_.threads[worker], request_.in_flight);
  }

 private:
  const NodeCostsRequest request_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_NODE_COSTS_H_
