// StepSkeleton: what the rules of placement look at of a training or evaluation step. Internal to
// placement/.
#ifndef WEFT_PLACEMENT_RULES_STEP_SKELETON_H_
#define WEFT_PLACEMENT_RULES_STEP_SKELETON_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/node_class.h"

namespace weft {

enum class NodeRole : uint8_t {
  kForward,   // runs once per micro-batch
  kBackward,  // likewise
  kBoundary,  // carries a value of the micro-batches into the step: Accumulate
  kStep,      // runs once per step
};

inline NodeRole RoleOf(const Node& node) {
  if (IsBoundary(node)) return NodeRole::kBoundary;
  if (IsForward(node)) return NodeRole::kForward;
  return IsBackward(node) ? NodeRole::kBackward : NodeRole::kStep;
}

// Where in a rank's step a node runs: a micro graph, or the end graph. (The begin graph has
// transfers of variables only.)
inline bool RunsPerMicroBatch(const Node& node) { return IsForward(node) || IsBackward(node); }

// Ids are those of the graph that it was made of.
struct StepSkeleton {
  struct Node {
    NodeRole role = NodeRole::kStep;
    NodeId forward_node;         // that Origin::forward_node names, if it is a forward node
    NodeId logical_producer;     // the forward node that makes Origin::logical_value
    int variable = -1;           // that Origin::logical_value names: its index
    std::vector<NodeId> inputs;  // what makes its inputs, in their order; others are left out
    std::vector<NodeId> readers;
  };
  struct Variable {
    std::vector<NodeId> readers;
    int slot_of = -1;  // index of the parameter that it is optimizer state of
    NodeId update;     // what makes its new value
  };
  std::vector<NodeId> order;        // topological
  std::vector<Node> nodes;          // by NodeId
  std::vector<Variable> variables;  // as in the graph
  std::vector<NodeId> reports;      // what makes the graph's outputs

  const Node& node(NodeId id) const { return nodes[id.value]; }
};

// InvalidArgument naming a node on a cycle.
absl::StatusOr<StepSkeleton> MakeSkeleton(const Graph& graph);

}  // namespace weft

#endif  // WEFT_PLACEMENT_RULES_STEP_SKELETON_H_
