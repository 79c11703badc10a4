// What gradient rules share.
#ifndef WEFT_OPS_DEFS_GRADIENTS_H_
#define WEFT_OPS_DEFS_GRADIENTS_H_

#include <functional>

#include "graph/graph_builder.h"
#include "graph/op_schema.h"

namespace weft {

// The shape of `value` as an int64 vector.
ValueId ShapeOf(GraphBuilder& builder, ValueId value);

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

#endif  // WEFT_OPS_DEFS_GRADIENTS_H_
