// LocalNodeView: the shard of a node that rank 0 of a tensor-parallel group runs, as costs see it.
// Internal to placement/search/.
#ifndef WEFT_PLACEMENT_SEARCH_LOCAL_NODE_VIEW_H_
#define WEFT_PLACEMENT_SEARCH_LOCAL_NODE_VIEW_H_

#include <vector>

#include "graph/op_schema.h"
#include "placement/sharding/sharding_propagation.h"

namespace weft {

// Borrows the global view. Shard 0 is the largest. Attributes and constants are the global node's.
class LocalNodeView final : public NodeView {
 public:
  LocalNodeView(const NodeView& global, const NodeSharding& sharding, int shards)
      : global_(global) {
    const auto local = [&](const Shape& shape, const AxisSharding& how) {
      return how.is_split() && how.Validate(shape).ok() ? how.LocalShape(shape, shards, 0) : shape;
    };
    for (int i = 0; i < global.num_inputs(); ++i) {
      inputs_.push_back(local(global.InputShape(i), sharding.inputs[i]));
    }
    for (int i = 0; i < global.num_outputs(); ++i) {
      outputs_.push_back(local(global.OutputShape(i), sharding.outputs[i]));
    }
  }

  const Node& node() const override { return global_.node(); }
  const Shape& InputShape(int i) const override { return ShapeAt(inputs_, i); }
  const Shape& OutputShape(int i) const override { return ShapeAt(outputs_, i); }
  DType InputDType(int i) const override { return global_.InputDType(i); }
  DType OutputDType(int i) const override { return global_.OutputDType(i); }
  const Tensor* InputValue(int i) const override { return global_.InputValue(i); }

 private:
  static const Shape& ShapeAt(const std::vector<Shape>& shapes, int i) {
    static const auto* const none = new Shape();
    return i >= 0 && i < static_cast<int>(shapes.size()) ? shapes[i] : *none;
  }

  const NodeView& global_;
  std::vector<Shape> inputs_;
  std::vector<Shape> outputs_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_LOCAL_NODE_VIEW_H_
