// The reductions other than ReduceSum and ReduceMean: extremes, products, norms and logarithms.
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/reduction.h"
#include "ops/defs/rules/rules.h"

namespace weft {
namespace {

// The gradient goes to the elements that are the result, in equal parts where several are.
absl::Status GradientOfExtreme(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const ValueId x = context.Input(0);
  const ValueId extreme = BroadcastReduced(context, context.Output(0), /*mean=*/false);
  const ValueId is_extreme = b.Op("Equal", {x, extreme});
  const ValueId mask = b.Op("Cast", {is_extreme}, {{"to", static_cast<int64_t>(b.type(dy).dtype)}});
  std::vector<ValueId> inputs = {mask};
  if (context.Input(1).valid()) inputs.push_back(context.Input(1));
  const ValueId count = b.Op("ReduceSum", std::move(inputs), context.node().attributes);
  const ValueId share = BroadcastReduced(context, b.Op("Div", {dy, count}), /*mean=*/false);
  context.SetInputGradient(0, b.Op("Mul", {mask, share}));
  return b.status();
}

WEFT_REGISTER_OP(Reduction("ReduceMax", kRealTypes)
                     .Gradient(GradientOfExtreme)
                     .Sharding(ReduceRule(FactorKind::kWhole, {})));
WEFT_REGISTER_OP(Reduction("ReduceMin", kRealTypes)
                     .Gradient(GradientOfExtreme)
                     .Sharding(ReduceRule(FactorKind::kWhole, {})));
// dy times the product of the other elements: of all that are not zero, divided by this one. Where
// there is one zero only it has a gradient, where there are several none has: an element counts
// when the zeros beside it are none, that is, when all zeros are as many as it is itself.
absl::Status GradientOfProduct(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const Algebra a(b, dy);
  const ValueId x = context.Input(0);
  const auto reduced = [&](const char* op, ValueId operand) {
    std::vector<ValueId> inputs = {operand};
    if (context.Input(1).valid()) inputs.push_back(context.Input(1));
    return b.Op(op, std::move(inputs), context.node().attributes);
  };
  const ValueId is_zero = b.Op("Equal", {x, a.Number(0)});
  const ValueId zero = MaskOf(b, is_zero, b.type(dy).dtype);
  const ValueId safe = a.Where(is_zero, a.Number(1), x);
  const ValueId zeros = BroadcastReduced(context, reduced("ReduceSum", zero), /*mean=*/false);
  const ValueId share =
      BroadcastReduced(context, a.Mul(dy, reduced("ReduceProd", safe)), /*mean=*/false);
  const ValueId counts = b.Op("Equal", {zero, zeros});
  context.SetInputGradient(0, a.Where(counts, a.Div(share, safe), a.Number(0)));
  return b.status();
}

WEFT_REGISTER_OP(Reduction("ReduceProd", kNumericTypes)
                     .Gradient(GradientOfProduct)
                     .Sharding(ReduceRule(FactorKind::kWhole, {})));

// dx = slope(x) * repeat(weight(dy, y)).
using WeightFn = ValueId (*)(const Algebra& a, ValueId dy, ValueId y);
using SlopeFn = ValueId (*)(GradientContext& context, const Algebra& a, ValueId x);

ValueId Same(const Algebra&, ValueId dy, ValueId) { return dy; }

GradientFn GradientBySlope(WeightFn weight, SlopeFn slope) {
  return [weight, slope](GradientContext& context) {
    const ValueId dy = context.OutputGradient(0);
    if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
    GraphBuilder& b = context.builder();
    const Algebra a(b, dy);
    const ValueId repeated =
        BroadcastReduced(context, weight(a, dy, context.Output(0)), /*mean=*/false);
    context.SetInputGradient(
        0, slope == nullptr ? repeated : a.Mul(slope(context, a, context.Input(0)), repeated));
    return b.status();
  };
}

// The absolute values, or squares, of shards add up.
WEFT_REGISTER_OP(Reduction("ReduceL1", kNumericTypes)
                     .Sharding(ReduceRule(FactorKind::kSum, {}))
                     .Gradient(GradientBySlope(Same, [](GradientContext&, const Algebra& a,
                                                        ValueId x) { return a.Of("Sign", x); })));
WEFT_REGISTER_OP(Reduction("ReduceSumSquare", kNumericTypes)
                     .Sharding(ReduceRule(FactorKind::kSum, {}))
                     .Gradient(GradientBySlope(Same, [](GradientContext&, const Algebra& a,
                                                        ValueId x) { return a.Mul(2, x); })));
// x / |x|
WEFT_REGISTER_OP(Reduction("ReduceL2", kNumericTypes)
                     .Sharding(ReduceRule(FactorKind::kWhole, {}))
                     .Gradient(GradientBySlope(
                         [](const Algebra& a, ValueId dy, ValueId y) { return a.Div(dy, y); },
                         [](GradientContext&, const Algebra&, ValueId x) { return x; })));
// 1 / sum, and the sum is e^y
WEFT_REGISTER_OP(Reduction("ReduceLogSum", kNumericTypes)
                     .Sharding(ReduceRule(FactorKind::kWhole, {}))
                     .Gradient(GradientBySlope([](const Algebra& a, ValueId dy,
                                                  ValueId y) { return a.Div(dy, a.Of("Exp", y)); },
                                               nullptr)));
// e^(x - y)
WEFT_REGISTER_OP(Reduction("ReduceLogSumExp", kNumericTypes)
                     .Sharding(ReduceRule(FactorKind::kWhole, {}))
                     .Gradient(GradientBySlope(Same, [](GradientContext& context, const Algebra& a,
                                                        ValueId x) {
                       const ValueId y = BroadcastReduced(context, context.Output(0), false);
                       return a.Of("Exp", a.Sub(x, y));
                     })));

}  // namespace
}  // namespace weft
