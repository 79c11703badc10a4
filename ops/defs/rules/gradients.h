// What gradient rules share.
#ifndef WEFT_OPS_DEFS_RULES_GRADIENTS_H_
#define WEFT_OPS_DEFS_RULES_GRADIENTS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"

namespace weft {

// The shape of `value` as an int64 vector.
ValueId ShapeOf(GraphBuilder& builder, ValueId value);

// The size of axis `axis` >= 0 of `value` as an int64 vector of one element.
ValueId DimOf(GraphBuilder& builder, ValueId value, int axis);

// 0, 1, ..., n - 1 as an int64 vector, n being the one element of `count`.
ValueId PositionsBelow(GraphBuilder& builder, ValueId count);

// A tensor of `dtype` in the shape of `like`, each element `value`.
ValueId FilledLike(GraphBuilder& builder, ValueId like, DType dtype, double value);

// `value` as `dtype`; no node when it has that dtype.
ValueId AsDType(GraphBuilder& builder, ValueId value, DType dtype);

// A bool tensor as zeros and ones.
ValueId MaskOf(GraphBuilder& builder, ValueId condition, DType dtype);

// The rank of `value`; Unimplemented, naming the node and the value, when inference did not find
// it.
absl::StatusOr<int> RankForGradient(const GradientContext& context, ValueId value);

// Unimplemented, naming the node and `what`, when the gradient of input `i` is asked for.
absl::Status RefuseInputGradient(const GradientContext& context, int i, const std::string& what);

// `gradient` summed over the axes along which `like` was broadcast, so that it has the shape of
// `like`. No node when the shapes are certain to be equal already.
ValueId SumToLike(GraphBuilder& builder, ValueId gradient, ValueId like);

// A gradient rule for an op with one output y and one differentiable input x (input 0), from the
// function that builds dx: called only when dy is there and dx is wanted.
using UnaryGradientFn =
    std::function<ValueId(GraphBuilder& builder, ValueId dy, ValueId x, ValueId y)>;
GradientFn UnaryGradient(UnaryGradientFn build);

// A rule for the ops y = f(a, b) that broadcast: each function builds the gradient in the shape of
// y; it is summed to the shape of its input here.
struct BinaryOperands {
  ValueId dy, a, b, y;
};
using BinaryGradientFn = std::function<ValueId(GraphBuilder& builder, const BinaryOperands&)>;
GradientFn BinaryGradient(BinaryGradientFn build_da, BinaryGradientFn build_db);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_RULES_GRADIENTS_H_
