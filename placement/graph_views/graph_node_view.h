// GraphNodeView: a node of a graph with concrete shapes, as sharding rules and costs see it.
#ifndef WEFT_PLACEMENT_GRAPH_VIEWS_GRAPH_NODE_VIEW_H_
#define WEFT_PLACEMENT_GRAPH_VIEWS_GRAPH_NODE_VIEW_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/op_schema.h"

namespace weft {

// Borrows graph and node.
class GraphNodeView final : public NodeView {
 public:
  // Internal when an operand's shape is not concrete.
  static absl::StatusOr<GraphNodeView> Create(const Graph& graph, const Node& node);

  const Node& node() const override { return *node_; }
  const Shape& InputShape(int i) const override { return ShapeAt(input_shapes_, i); }
  const Shape& OutputShape(int i) const override { return ShapeAt(output_shapes_, i); }
  DType InputDType(int i) const override { return DTypeAt(node_->inputs, i); }
  DType OutputDType(int i) const override { return DTypeAt(node_->outputs, i); }
  const Tensor* InputValue(int i) const override;

 private:
  GraphNodeView(const Graph& graph, const Node& node) : graph_(&graph), node_(&node) {}
  static const Shape& ShapeAt(const std::vector<Shape>& shapes, int i);
  DType DTypeAt(const std::vector<ValueId>& values, int i) const;

  const Graph* graph_;
  const Node* node_;
  std::vector<Shape> input_shapes_;
  std::vector<Shape> output_shapes_;
};

// The concrete shape of a value. REQUIRES: it has one.
Shape ShapeOf(const Graph& graph, ValueId value);
int64_t BytesOf(const Graph& graph, ValueId value);

}  // namespace weft

#endif  // WEFT_PLACEMENT_GRAPH_VIEWS_GRAPH_NODE_VIEW_H_
