// Sum, Mean, Max, Min: any number of operands that broadcast.
#include "absl/strings/str_cat.h"
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferVariadic(InferenceContext& context) {
  if (context.num_inputs() == 0) return context.Error("the op has no inputs, expected at least 1");
  return InferBroadcast(context);
}

OpSchema Variadic(std::string name, std::initializer_list<DType> dtypes) {
  return OpSchema::Onnx(std::move(name))
      .VariadicInput("data", dtypes)
      .Output("result")
      .Infer(InferVariadic)
      .CostOf([](const NodeView& view) {
        const double elements = static_cast<double>(view.OutputShape(0).num_elements());
        return Cost{elements * (view.num_inputs() - 1), OperandBytes(view)};
      });
}

// Sums are linear in all their operands together.
absl::StatusOr<FactorRule> LinearRule(const NodeView& view) {
  WEFT_ASSIGN_OR_RETURN(FactorRule rule, ElementwiseRule(view));
  std::vector<int> all;
  for (int i = 0; i < view.num_inputs(); ++i) all.push_back(i);
  rule.linear = {all};
  return rule;
}

// Every operand gets dy, in equal parts for a mean.
GradientFn GradientOfSum(bool mean) {
  return [mean](GradientContext& context) {
    ValueId dy = context.OutputGradient(0);
    if (!dy.valid()) return absl::OkStatus();
    GraphBuilder& b = context.builder();
    const int count = static_cast<int>(context.node().inputs.size());
    if (mean) dy = Algebra(b, dy).Mul(1.0 / count, dy);
    for (int i = 0; i < count; ++i) {
      if (context.NeedsInputGradient(i)) {
        context.SetInputGradient(i, SumToLike(b, dy, context.Input(i)));
      }
    }
    return b.status();
  };
}

// dy goes to the operands that are the result, in equal parts where several are.
absl::Status GradientOfExtreme(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const Algebra a(b, dy);
  const int count = static_cast<int>(context.node().inputs.size());
  std::vector<ValueId> chosen;
  for (int i = 0; i < count; ++i) {
    const ValueId equal = b.Op("Equal", {context.Input(i), context.Output(0)});
    chosen.push_back(a.Where(equal, a.Number(1), a.Number(0)));
  }
  const ValueId share = a.Div(dy, b.Op("Sum", chosen));
  for (int i = 0; i < count; ++i) {
    if (!context.NeedsInputGradient(i)) continue;
    context.SetInputGradient(i, SumToLike(b, a.Mul(share, chosen[i]), context.Input(i)));
  }
  return b.status();
}

WEFT_REGISTER_OP(
    Variadic("Sum", kFloatTypes).Sharding(LinearRule).Gradient(GradientOfSum(/*mean=*/false)));
WEFT_REGISTER_OP(
    Variadic("Mean", kFloatTypes).Sharding(LinearRule).Gradient(GradientOfSum(/*mean=*/true)));
WEFT_REGISTER_OP(
    Variadic("Max", kNumericTypes).Sharding(ElementwiseRule).Gradient(GradientOfExtreme));
WEFT_REGISTER_OP(
    Variadic("Min", kNumericTypes).Sharding(ElementwiseRule).Gradient(GradientOfExtreme));

}  // namespace
}  // namespace weft
