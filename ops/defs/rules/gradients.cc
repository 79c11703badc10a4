#include "ops/defs/rules/gradients.h"

#include "absl/strings/str_cat.h"

namespace weft {

ValueId ShapeOf(GraphBuilder& builder, ValueId value) { return builder.Op("Shape", {value}); }

ValueId DimOf(GraphBuilder& builder, ValueId value, int axis) {
  const int64_t first = axis;
  return builder.Op("Shape", {value}, {{"start", first}, {"end", first + 1}});
}

ValueId PositionsBelow(GraphBuilder& builder, ValueId count) {
  const ValueId zero = builder.Constant(Tensor::Scalar<int64_t>(0));
  const ValueId one = builder.Constant(Tensor::Scalar<int64_t>(1));
  return builder.Op("Range", {zero, builder.Op("Squeeze", {count, builder.Ints({0})}), one});
}

ValueId FilledLike(GraphBuilder& builder, ValueId like, DType dtype, double value) {
  if (!like.valid()) return kNoValue;
  return builder.Op("Expand", {builder.Scalar(dtype, value), ShapeOf(builder, like)});
}

ValueId AsDType(GraphBuilder& builder, ValueId value, DType dtype) {
  if (!value.valid() || builder.type(value).dtype == dtype) return value;
  return builder.Op("Cast", {value}, {{"to", static_cast<int64_t>(dtype)}});
}

ValueId MaskOf(GraphBuilder& builder, ValueId condition, DType dtype) {
  return builder.Op("Cast", {condition}, {{"to", static_cast<int64_t>(dtype)}});
}

absl::StatusOr<int> RankForGradient(const GradientContext& context, ValueId value) {
  const ValueDef& def = context.graph().value(value);
  if (def.type.shape.has_rank()) return def.type.shape.rank();
  return absl::UnimplementedError(absl::StrCat("node '", context.node().name, "': the gradient of ",
                                               context.node().op, " needs the rank of '", def.name,
                                               "', which shape inference could not find"));
}

absl::Status RefuseInputGradient(const GradientContext& context, int i, const std::string& what) {
  if (!context.Input(i).valid() || !context.NeedsInputGradient(i)) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("node '", context.node().name, "': no gradient of ", context.node().op,
                   " flows to ", what, " ('", context.graph().value(context.Input(i)).name,
                   "'); freeze what it is computed from (--freeze PATTERN) to train the rest"));
}

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
