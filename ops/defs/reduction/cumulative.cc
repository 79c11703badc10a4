// CumSum and CumProd along an axis that is an operand.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferCumulative(InferenceContext& context) {
  const std::optional<Shape> axis = context.InputShape(1).ToConcrete();
  if (axis.has_value() && axis->num_elements() != 1) {
    return context.Error(
        absl::StrCat("the axis has the shape ", axis->ToString(), ", expected one element"));
  }
  return InferLikeFirstInput(context);
}

// `operands` operands of the shape of y, then the axis, which is needed whole.
ShardingFn AlongOperandAxis(int operands, std::vector<std::vector<int>> linear) {
  return
      [operands, linear = std::move(linear)](const NodeView& view) -> absl::StatusOr<FactorRule> {
        const Shape& y = view.OutputShape(0);
        const Tensor* const value = view.InputValue(operands);
        // Where the axis is not known, any may be meant.
        if (value == nullptr || y.rank() == 0) return WholeRuleOf(view);
        WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, ToInt64s(*value));
        WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axes.at(0), y.rank()));
        FactorRuleBuilder rule;
        std::vector<int> factors;
        for (int d = 0; d < y.rank(); ++d) {
          const FactorKind kind = d == axis ? FactorKind::kWhole : FactorKind::kParallel;
          factors.push_back(rule.Factor(y.dim(d), kind));
        }
        for (int i = 0; i < operands; ++i) rule.Input(factors);
        return rule.ShapeInput(view.InputShape(operands)).Output(factors).Linear(linear).Build();
      };
}

OpSchema Cumulative(std::string name) {
  return OpSchema::Onnx(std::move(name))
      .Input("x", kNumericTypes)
      .Input("axis", kIndexTypes)
      .NeverLearnable()
      .Output("y")
      .Attr("exclusive", AttributeType::kInt)
      .Attr("reverse", AttributeType::kInt)
      .Infer(InferCumulative)
      .CostOf(FlopsPerElement(1));
}

// An element counts in all sums from its own on: the sums of dy in the other direction.
absl::Status CumSumGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const Attributes& attributes = context.node().attributes;
  const int64_t reverse = attributes.Int("reverse", 0) == 0 ? 1 : 0;
  context.SetInputGradient(
      0, b.Op("CumSum", {dy, context.Input(1)},
              {{"exclusive", attributes.Int("exclusive", 0)}, {"reverse", reverse}}));
  return b.status();
}

WEFT_REGISTER_OP(
    Cumulative("CumSum").Gradient(CumSumGradient).Sharding(AlongOperandAxis(1, {{0}})));

absl::Status CumProdGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  context.SetInputGradient(
      0, context.builder().WeftOp("CumProdGrad", {dy, context.Input(0), context.Input(1)},
                                  context.node().attributes));
  return context.builder().status();
}

WEFT_REGISTER_OP(Cumulative("CumProd").Gradient(CumProdGradient).Sharding(AlongOperandAxis(1, {})));

absl::Status InferCumProdGrad(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  context.SetOutput(0, context.InputType(1));
  return absl::OkStatus();
}

// dx[k] = (product of x before k) * s[k], where s[k] = dy[k] + x[k + 1] s[k + 1]; in an exclusive
// product s[k] = dy[k + 1] + x[k + 1] s[k + 1]. Nothing is divided: zeros do no harm.
WEFT_REGISTER_OP(OpSchema::Weft("CumProdGrad")
                     .GradientMissing("part of a gradient")
                     .Input("dy", kFloatTypes)
                     .Input("x", kFloatTypes)
                     .Input("axis", kIndexTypes)
                     .Output("dx")
                     .Attr("exclusive", AttributeType::kInt)
                     .Attr("reverse", AttributeType::kInt)
                     .Infer(InferCumProdGrad)
                     .Sharding(AlongOperandAxis(2, {{0}}))
                     .CostOf(FlopsPerElement(4)));

}  // namespace
}  // namespace weft
