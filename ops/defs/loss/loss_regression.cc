// MeanSquaredError and SquaredErrorSum of a prediction and a target of one shape, and their
// backward kernel.
#include "absl/strings/str_cat.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status CheckSameShape(const InferenceContext& context, int a, int b) {
  const SymbolicShape& first = context.InputShape(a);
  const SymbolicShape& second = context.InputShape(b);
  if (!first.has_rank() || !second.has_rank()) return absl::OkStatus();
  bool fits = first.rank() == second.rank();
  for (int d = 0; fits && d < first.rank(); ++d) {
    fits = !first.dim(d).is_known() || !second.dim(d).is_known() || first.dim(d) == second.dim(d);
  }
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat("the prediction ", first.ToString(), " and the target ",
                                    second.ToString(), " must have one shape"));
}

absl::Status InferSquaredError(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  WEFT_RETURN_IF_ERROR(CheckSameShape(context, 0, 1));
  context.SetOutput(0, context.InputType(0).dtype, SymbolicShape(Shape{}));
  return absl::OkStatus();
}

// Both the sum and the mean (which divides by the global count) of shards add up.
absl::StatusOr<FactorRule> SquaredErrorRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const std::vector<int> factors = rule.Factors(view.InputShape(0), FactorKind::kSum);
  return rule.Input(factors).Input(factors).Output({}).Build();
}

Cost SquaredErrorCost(const NodeView& view) {
  return {3.0 * static_cast<double>(view.InputShape(0).num_elements()), OperandBytes(view)};
}

GradientFn SquaredErrorGradient(bool mean) {
  return [mean](GradientContext& context) {
    ValueId dy = context.OutputGradient(0);
    if (!dy.valid()) return absl::OkStatus();
    GraphBuilder& b = context.builder();
    if (mean) dy = b.Op("Div", {dy, b.WeftOp("ElementCount", {context.Input(0)})});
    for (const int input : {0, 1}) {
      if (!context.NeedsInputGradient(input)) continue;
      const ValueId other = context.Input(1 - input);
      context.SetInputGradient(input,
                               b.WeftOp("SquaredErrorGrad", {dy, context.Input(input), other}));
    }
    return b.status();
  };
}

OpSchema SquaredError(std::string name) {
  return OpSchema::Weft(std::move(name))
      .Input("prediction", kFloatTypes)
      .Input("target", kFloatTypes)
      .Output("error")
      .Infer(InferSquaredError)
      .Sharding(SquaredErrorRule)
      .CostOf(SquaredErrorCost);
}

absl::StatusOr<MeanParts> MeanPartsOfSquaredError(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const std::vector<ValueId>& inputs = context.node().inputs;
  const MeanParts parts{b.WeftOp("SquaredErrorSum", inputs), b.WeftOp("ElementCount", {inputs[0]})};
  WEFT_RETURN_IF_ERROR(b.status());
  return parts;
}

WEFT_REGISTER_OP(SquaredError("MeanSquaredError")
                     .Gradient(SquaredErrorGradient(/*mean=*/true))
                     .MeanLoss(MeanPartsOfSquaredError));
WEFT_REGISTER_OP(SquaredError("SquaredErrorSum").Gradient(SquaredErrorGradient(/*mean=*/false)));

absl::Status InferSquaredErrorGrad(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1, 2}));
  WEFT_RETURN_IF_ERROR(CheckSameShape(context, 1, 2));
  context.SetOutput(0, context.InputType(1));
  return absl::OkStatus();
}

// SquaredErrorGrad(dy [], a, b) = 2 dy (a - b)
WEFT_REGISTER_OP(OpSchema::Weft("SquaredErrorGrad")
                     .Input("dY", kFloatTypes)
                     .Input("a", kFloatTypes)
                     .Input("b", kFloatTypes)
                     .Output("da")
                     .Infer(InferSquaredErrorGrad)
                     .NoGradient("part of a gradient")
                     .Sharding(LinearElementwiseRule({{0}, {1, 2}}))
                     .CostOf(FlopsPerElement(2))
                     .InPlace(1, 0)
                     .InPlace(2, 0));

}  // namespace
}  // namespace weft
