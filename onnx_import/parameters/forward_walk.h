// Where a value goes: questions about its uses and what becomes of them.
#ifndef WEFT_ONNX_IMPORT_PARAMETERS_FORWARD_WALK_H_
#define WEFT_ONNX_IMPORT_PARAMETERS_FORWARD_WALK_H_

#include <functional>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace weft {

// Whether the node is this operator of ONNX's own domain, or one of these.
bool IsOp(const Node& node, std::string_view op);
bool IsOneOf(const Node& node, const std::vector<std::string_view>& ops);

// Whether output 0 has the elements of this input, or some of them, under another shape, order or
// type (Reshape, Transpose, Cast, Slice, Expand, ...).
bool PassesOn(const Node& node, int input);

// Knows the uses of each value. Every walk stops after some thousand nodes, and then says no.
// Borrows the graph, which must not change while it lives.
class ForwardWalk {
 public:
  // Of a node that uses a value, at which input.
  using Test = std::function<bool(const Node& node, int input)>;
  struct Use {
    const Node* node = nullptr;
    int input = 0;
  };

  explicit ForwardWalk(const Graph& graph);

  // Whether each way that the value goes, on through the nodes that `follow` takes, ends at a node
  // that `accept` takes, and at least one does. `accept` is asked first. A graph output is an end
  // that nobody takes.
  bool AllEndAt(ValueId value, const Test& follow, const Test& accept) const;

  // The uses of the value and of what PassesOn nodes make of it, without these nodes; the first
  // few.
  std::vector<Use> EffectiveUses(ValueId value) const;

  // Back through PassesOn nodes: the node that made the elements; null for one that no node made.
  const Node* MakerOf(ValueId value) const;

  // The node's other operand; kNoValue unless it has just two inputs.
  static ValueId OtherOperand(const Node& node, int input);

 private:
  const Graph& graph_;
  std::vector<std::vector<Graph::Use>> uses_;  // by value
  std::vector<bool> is_output_;                // by value
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_PARAMETERS_FORWARD_WALK_H_
