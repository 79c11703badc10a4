#include "ops/defs/gradients.h"

namespace weft {

ValueId ShapeOf(GraphBuilder& builder, ValueId value) { return builder.Op("Shape", {value}); }

ValueId SumToLike(GraphBuilder& builder, ValueId gradient, ValueId like) {
  if (!gradient.valid() || !like.valid()) return kNoValue;
  const SymbolicShape& from = builder.type(gradient).shape;
  const SymbolicShape& to = builder.type(like).shape;
  if (from.has_rank() && to.has_rank() && from == to) return gradient;
  return builder.WeftOp("SumToShape", {gradient, ShapeOf(builder, like)});
}

GradientFn UnaryGradient(UnaryGradientFn build) {
  return [build = std::move(build)](GradientContext& context) {
    const ValueId dy = context.OutputGradient(0);
    if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
    GraphBuilder& builder = context.builder();
    context.SetInputGradient(0, build(builder, dy, context.Input(0), context.Output(0)));
    return builder.status();
  };
}

GradientFn BinaryGradient(BinaryGradientFn build_da, BinaryGradientFn build_db) {
  return
      [build_da = std::move(build_da), build_db = std::move(build_db)](GradientContext& context) {
        const BinaryOperands operands{context.OutputGradient(0), context.Input(0), context.Input(1),
                                      context.Output(0)};
        if (!operands.dy.valid()) return absl::OkStatus();
        GraphBuilder& builder = context.builder();
        if (context.NeedsInputGradient(0)) {
          context.SetInputGradient(0, SumToLike(builder, build_da(builder, operands), operands.a));
        }
        if (context.NeedsInputGradient(1)) {
          context.SetInputGradient(1, SumToLike(builder, build_db(builder, operands), operands.b));
        }
        return builder.status();
      };
}

}  // namespace weft
