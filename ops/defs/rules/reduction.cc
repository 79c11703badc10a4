#include "ops/defs/rules/reduction.h"

#include "ops/axes.h"
#include "ops/defs/rules/gradients.h"
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

}  // namespace

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

ValueId BroadcastReduced(GradientContext& context, ValueId small, bool mean) {
  GraphBuilder& b = context.builder();
  std::vector<ValueId> inputs = {small, ShapeOf(b, context.Input(0))};
  if (context.Input(1).valid()) inputs.push_back(context.Input(1));
  const Attributes& from = context.node().attributes;
  Attributes attributes = {{"keepdims", from.Int("keepdims", 1)},
                           {"noop_with_empty_axes", from.Int("noop_with_empty_axes", 0)}};
  if (mean) attributes.Set("mean", int64_t{1});
  return b.WeftOp("BroadcastReduced", std::move(inputs), std::move(attributes));
}

}  // namespace weft
