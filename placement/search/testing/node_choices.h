// NodeChoices: what one node can do along the tensor axis, as rows of an integer program. Internal
// to placement/search/.
#ifndef WEFT_PLACEMENT_SEARCH_TESTING_NODE_CHOICES_H_
#define WEFT_PLACEMENT_SEARCH_TESTING_NODE_CHOICES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/sharding.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/search/tensor_costs.h"

namespace weft {

// Slots of a node are the values around it whose layout is open: what it reads, each once, then
// what it makes.
struct NodeChoices {
  struct Row {
    std::vector<int> layouts;  // by slot, of `layouts`
    double seconds = 0;
    double preference = 0;   // a little that tells rows that cost the same
    bool is_hinted = false;  // the results lie so because they are hinted to
    double cost() const { return seconds + preference; }
  };
  std::vector<std::vector<AxisSharding>> layouts;  // by slot
  std::vector<bool> is_shared;                     // by slot: other nodes read or make it too
  // The cheapest row of each combination of the shared slots' layouts.
  std::vector<Row> rows;
  bool leaves_ways_out = false;

  std::vector<int> SharedLayouts(const Row& row) const {
    std::vector<int> shared;
    for (size_t slot = 0; slot < row.layouts.size(); ++slot) {
      if (is_shared[slot]) shared.push_back(row.layouts[slot]);
    }
    return shared;
  }
};

// A value that a node reads.
struct OperandWays {
  ValueId value;
  std::vector<AxisSharding> layouts;
  bool is_shared = true;  // false: a variable that no other forward node reads
};

class NodeChoiceMaker {
 public:
  NodeChoiceMaker(TensorCosts& costs, int64_t max_operand_ways)
      : costs_(costs), max_operand_ways_(max_operand_ways) {}

  // Ways in which a node can read a variable as it lies, and Replicated.
  absl::StatusOr<std::vector<AxisSharding>> WaysToRead(const Node& node, ValueId variable) const;
  // `operands`: the node's open ones, each once; others are whole. KeepingSeconds of variables that
  // are not shared are counted here.
  absl::StatusOr<NodeChoices> Make(const Node& node,
                                   const std::vector<OperandWays>& operands) const;
  // Adds a text that tells results from others that their node can make in other ways.
  void AppendResult(ValueId result, std::string& key) const;

 private:
  using Hints = std::vector<std::optional<AxisSharding>>;  // by output
  struct Building;

  absl::StatusOr<std::vector<std::vector<int>>> WaysOfSplits(
      const GraphNodeView& view, const std::vector<OperandWays>& operands) const;
  absl::StatusOr<std::vector<std::vector<int>>> OperandCombinations(
      const GraphNodeView& view, const std::vector<OperandWays>& operands) const;
  // Whether a plan may hint a value that a node makes to lie so.
  bool MayHint(ValueId value, const AxisSharding& sharding) const;
  // The hint that is given for a value that a node makes.
  std::optional<AxisSharding> GivenFor(ValueId made) const;
  std::vector<Hints> HintsOf(const Node& node, const std::vector<NodeSharding>& candidates) const;
  absl::Status AddRows(const GraphNodeView& view, const std::vector<OperandWays>& operands,
                       const std::vector<int>& ways, Building& building) const;

  TensorCosts& costs_;
  const int64_t max_operand_ways_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_TESTING_NODE_CHOICES_H_
