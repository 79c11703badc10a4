// ReduceSum and ReduceMean; and, for gradients, their counterpart BroadcastReduced and the
// undoing of broadcasting, SumToShape.
#include "absl/strings/str_cat.h"
#include "ops/axes.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/reduction.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

GradientFn GradientOfLinearReduction(bool mean) {
  return [mean](GradientContext& context) {
    const ValueId dy = context.OutputGradient(0);
    if (dy.valid() && context.NeedsInputGradient(0)) {
      context.SetInputGradient(0, BroadcastReduced(context, dy, mean));
    }
    return context.builder().status();
  };
}

// A mean over everything is a loss: its parts are the sum and the number of the elements at hand.
absl::StatusOr<MeanParts> MeanPartsOfReduceMean(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  const std::optional<Shape> output = b.type(node.outputs[0]).shape.ToConcrete();
  if (!output.has_value() || output->num_elements() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ReduceMean is a mean loss only when it leaves one element, but its output is ",
        b.type(node.outputs[0]).ToString()));
  }
  const ValueId sum = b.Op("ReduceSum", node.inputs, node.attributes);
  const ValueId count = b.WeftOp("ElementCount", {node.inputs[0]});
  WEFT_RETURN_IF_ERROR(b.status());
  return MeanParts{sum, count};
}

WEFT_REGISTER_OP(Reduction("ReduceSum", kNumericTypes)
                     .Gradient(GradientOfLinearReduction(/*mean=*/false))
                     .Sharding(ReduceRule(FactorKind::kSum, {{0}})));

// Shards divide by the global count, so their partial results add up.
WEFT_REGISTER_OP(Reduction("ReduceMean", kNumericTypes)
                     .Gradient(GradientOfLinearReduction(/*mean=*/true))
                     .MeanLoss(MeanPartsOfReduceMean)
                     .Sharding(ReduceRule(FactorKind::kSum, {{0}})));

// ---- BroadcastReduced(small, shape, axes): `small`, a reduction's result, at each of the elements
// it came from; divided by their number if `mean`.

absl::Status InferToShape(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  if (const std::optional<std::vector<Dim>> dims = context.InputDims(1); dims.has_value()) {
    context.SetOutput(0, dtype, SymbolicShape(*dims));
    return absl::OkStatus();
  }
  const SymbolicShape& length = context.InputShape(1);
  if (length.has_rank() && length.rank() == 1 && length.dim(0).is_known() &&
      length.dim(0).size() <= kMaxRank) {
    context.SetOutput(0, dtype, SymbolicShape(std::vector<Dim>(length.dim(0).size())));
  } else {
    context.SetOutput(0, dtype, SymbolicShape());
  }
  return absl::OkStatus();
}

// Input 1 says the shape of the output: the local one on a shard.
absl::Status LocalizeToShape(LocalizeContext& context) {
  const Shape& local = context.LocalOutputShape(0);
  const std::vector<int64_t> dims(local.dims().begin(), local.dims().end());
  context.SetConstantInput(1, Tensor::Of<int64_t>(Shape{local.rank()}, dims));
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> BroadcastReducedRule(const NodeView& view) {
  FactorRuleBuilder rule;
  WEFT_ASSIGN_OR_RETURN(const ReduceFactors factors,
                        FactorsOfReduce(rule, view, view.OutputShape(0), 2, FactorKind::kParallel));
  rule.Input(factors.small).ShapeInput(view.InputShape(1));
  if (view.num_inputs() > 2) rule.ReplicatedInput(view.InputShape(2));
  return rule.Output(factors.big).Linear({{0}}).Build();
}

WEFT_REGISTER_OP(OpSchema::Weft("BroadcastReduced")
                     .Input("small", kNumericTypes)
                     .Input("shape", {DType::kInt64})
                     .OptionalInput("axes", {DType::kInt64})
                     .Output("big")
                     .Attr("keepdims", AttributeType::kInt)
                     .Attr("noop_with_empty_axes", AttributeType::kInt)
                     .Attr("mean", AttributeType::kInt)
                     .Infer(InferToShape)
                     .NoGradient("part of a gradient")
                     .Sharding(BroadcastReducedRule)
                     .Localize(LocalizeToShape)
                     .CostOf(FlopsPerElement(1))
                     .ValueInputs({1, 2}));

// ---- SumToShape(x, shape): x summed over the axes along which `shape` was broadcast to x's shape.

absl::Status InferSumToShape(InferenceContext& context) {
  const std::optional<std::vector<Dim>> to = context.InputDims(1);
  const SymbolicShape& from = context.InputShape(0);
  if (to.has_value() && from.has_rank()) {
    const int first = from.rank() - static_cast<int>(to->size());
    for (int d = 0; d < static_cast<int>(to->size()); ++d) {
      const Dim& dim = (*to)[d];
      const bool fits =
          first >= 0 && (!dim.is_known() || dim.size() == 1 || !from.dim(first + d).is_known() ||
                         from.dim(first + d).size() == dim.size());
      if (!fits) {
        return context.Error(absl::StrCat("cannot be summed to the shape ",
                                          SymbolicShape(*to).ToString(),
                                          ", which does not broadcast to the input's"));
      }
    }
  }
  return InferToShape(context);
}

absl::StatusOr<FactorRule> SumToShapeRule(const NodeView& view) {
  const Shape& from = view.InputShape(0);
  const Shape& to = view.OutputShape(0);
  FactorRuleBuilder rule;
  std::vector<int> from_factors;
  std::vector<int> to_factors;
  for (int d = 0; d < from.rank(); ++d) {
    const int axis = d - (from.rank() - to.rank());
    const bool kept = axis >= 0 && to.dim(axis) == from.dim(d);
    from_factors.push_back(
        rule.Factor(from.dim(d), kept ? FactorKind::kParallel : FactorKind::kSum));
    if (axis >= 0) to_factors.push_back(kept ? from_factors.back() : -1);
  }
  return rule.Input(from_factors)
      .ShapeInput(view.InputShape(1))
      .Output(to_factors)
      .Linear({{0}})
      .Build();
}

WEFT_REGISTER_OP(OpSchema::Weft("SumToShape")
                     .Input("x", kNumericTypes)
                     .Input("shape", {DType::kInt64})
                     .Output("y")
                     .Infer(InferSumToShape)
                     .NoGradient("part of a gradient")
                     .Sharding(SumToShapeRule)
                     .Localize(LocalizeToShape)
                     .CostOf(ReduceCost)
                     .NoOpWhenSameShape()
                     .ValueInputs({1}));

// ---- ElementCount(x): how many elements x has, as a scalar of x's type. The counts of shards add
// up.

absl::Status InferElementCount(InferenceContext& context) {
  context.SetOutput(0, context.InputType(0).dtype, SymbolicShape(Shape{}));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Weft("ElementCount")
                     .Input("x", kNumericTypes)
                     .Output("count")
                     .Infer(InferElementCount)
                     .NoGradient("positions and counts")
                     .Sharding([](const NodeView& view) -> absl::StatusOr<FactorRule> {
                       FactorRuleBuilder rule;
                       rule.Input(rule.Factors(view.InputShape(0), FactorKind::kSum));
                       return rule.Output({}).Build();
                     }));

}  // namespace
}  // namespace weft
