// ReduceSum, ReduceMean, ReduceMax; and, for gradients, their counterpart BroadcastReduced and the
// undoing of broadcasting, SumToShape.
#include "absl/strings/str_cat.h"
#include "ops/axes.h"
#include "ops/defs/gradients.h"
#include "ops/defs/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

bool NoopWithEmptyAxes(const Attributes& attributes) {
  return attributes.Int("noop_with_empty_axes", 0) != 0;
}

bool Keepdims(const Attributes& attributes) { return attributes.Int("keepdims", 1) != 0; }

// All the shape function can say while the axes are not known.
SymbolicShape ShapeOfUnknownAxes(const SymbolicShape& input, bool keepdims) {
  if (!keepdims) return SymbolicShape();
  return SymbolicShape(std::vector<Dim>(input.rank()));
}

absl::Status InferReduce(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& input = context.InputShape(0);
  const bool keepdims = Keepdims(context.attributes());
  if (!input.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  const Tensor* axes = context.HasInput(1) ? context.InputValue(1) : nullptr;
  if (context.HasInput(1) && axes == nullptr) {
    context.SetOutput(0, dtype, ShapeOfUnknownAxes(input, keepdims));
    return absl::OkStatus();
  }
  const absl::StatusOr<std::vector<bool>> reduced =
      ReducedAxes(input.rank(), axes, NoopWithEmptyAxes(context.attributes()));
  if (!reduced.ok()) return context.Error(std::string(reduced.status().message()));
  std::vector<Dim> dims;
  for (int d = 0; d < input.rank(); ++d) {
    if (!(*reduced)[d]) {
      dims.push_back(input.dim(d));
    } else if (keepdims) {
      dims.push_back(Dim(1));
    }
  }
  context.SetOutput(0, dtype, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

// Factors of the big operand's axes (`kind` for the reduced ones) and of the small one's.
struct ReduceFactors {
  std::vector<int> big;
  std::vector<int> small;
};

absl::StatusOr<ReduceFactors> FactorsOfReduce(FactorRuleBuilder& rule, const NodeView& view,
                                              const Shape& big, int axes_input,
                                              FactorKind reduced_kind) {
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<bool> reduced,
      ReducedAxes(big.rank(), view.HasInput(axes_input) ? view.InputValue(axes_input) : nullptr,
                  NoopWithEmptyAxes(view.attributes())));
  ReduceFactors factors;
  for (int d = 0; d < big.rank(); ++d) {
    factors.big.push_back(
        rule.Factor(big.dim(d), reduced[d] ? reduced_kind : FactorKind::kParallel));
    if (!reduced[d]) {
      factors.small.push_back(factors.big.back());
    } else if (Keepdims(view.attributes())) {
      factors.small.push_back(-1);
    }
  }
  return factors;
}

ShardingFn ReduceRule(FactorKind reduced_kind, std::vector<std::vector<int>> linear) {
  return [reduced_kind,
          linear = std::move(linear)](const NodeView& view) -> absl::StatusOr<FactorRule> {
    FactorRuleBuilder rule;
    WEFT_ASSIGN_OR_RETURN(const ReduceFactors factors,
                          FactorsOfReduce(rule, view, view.InputShape(0), 1, reduced_kind));
    rule.Input(factors.big);
    if (view.num_inputs() > 1) rule.ReplicatedInput(view.InputShape(1));
    return rule.Output(factors.small).Linear(linear).Build();
  };
}

Cost ReduceCost(const NodeView& view) {
  return {static_cast<double>(view.InputShape(0).num_elements()), OperandBytes(view)};
}

OpSchema Reduction(std::string name, std::initializer_list<DType> dtypes) {
  return OpSchema::Onnx(std::move(name))
      .Input("data", dtypes)
      .OptionalInput("axes", {DType::kInt64})
      .NeverLearnable()
      .Output("reduced")
      .Attr("keepdims", AttributeType::kInt)
      .Attr("noop_with_empty_axes", AttributeType::kInt)
      .Infer(InferReduce)
      .CostOf(ReduceCost)
      .ValueInputs({1});
}

// `small`, which has the shape of the node's output, repeated along the reduced axes of its input.
ValueId Broadcast(GradientContext& context, ValueId small, bool mean) {
  GraphBuilder& b = context.builder();
  std::vector<ValueId> inputs = {small, ShapeOf(b, context.Input(0))};
  if (context.Input(1).valid()) inputs.push_back(context.Input(1));
  const Attributes& from = context.node().attributes;
  Attributes attributes = {{"keepdims", from.Int("keepdims", 1)},
                           {"noop_with_empty_axes", from.Int("noop_with_empty_axes", 0)}};
  if (mean) attributes.Set("mean", int64_t{1});
  return b.WeftOp("BroadcastReduced", std::move(inputs), std::move(attributes));
}

GradientFn GradientOfLinearReduction(bool mean) {
  return [mean](GradientContext& context) {
    const ValueId dy = context.OutputGradient(0);
    if (dy.valid() && context.NeedsInputGradient(0)) {
      context.SetInputGradient(0, Broadcast(context, dy, mean));
    }
    return context.builder().status();
  };
}

// The gradient goes to the largest elements, in equal parts where several are equally large.
absl::Status ReduceMaxGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const ValueId x = context.Input(0);
  const ValueId largest = Broadcast(context, context.Output(0), /*mean=*/false);
  const ValueId is_largest = b.Op("Equal", {x, largest});
  const ValueId mask = b.Op("Cast", {is_largest}, {{"to", static_cast<int64_t>(b.type(dy).dtype)}});
  std::vector<ValueId> inputs = {mask};
  if (context.Input(1).valid()) inputs.push_back(context.Input(1));
  const ValueId count = b.Op("ReduceSum", std::move(inputs), context.node().attributes);
  const ValueId share = Broadcast(context, b.Op("Div", {dy, count}), /*mean=*/false);
  context.SetInputGradient(0, b.Op("Mul", {mask, share}));
  return b.status();
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

WEFT_REGISTER_OP(Reduction("ReduceMax", kRealTypes)
                     .Gradient(ReduceMaxGradient)
                     .Sharding(ReduceRule(FactorKind::kWhole, {})));

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
                     .NoGradient()
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
                     .NoGradient()
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
                     .NoGradient()
                     .Sharding([](const NodeView& view) -> absl::StatusOr<FactorRule> {
                       FactorRuleBuilder rule;
                       rule.Input(rule.Factors(view.InputShape(0), FactorKind::kSum));
                       return rule.Output({}).Build();
                     }));

}  // namespace
}  // namespace weft
