// Activations: elementwise functions with a shape of their own, most with parameters in attributes.
#include "absl/strings/str_cat.h"
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "ops/defs/rules/type_lists.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The formula of the slope at x; it is multiplied by dy.
using SlopeFn = ValueId (*)(const Algebra& a, const Attributes& attributes, ValueId x, ValueId y);

GradientFn GradientBySlope(SlopeFn slope) {
  return [slope](GradientContext& context) {
    const ValueId dy = context.OutputGradient(0);
    if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
    GraphBuilder& b = context.builder();
    const Algebra a(b, dy);
    context.SetInputGradient(
        0, a.Mul(dy, slope(a, context.node().attributes, context.Input(0), context.Output(0))));
    return b.status();
  };
}

// At a kink the derivative has no value. The slopes there are PyTorch's, as the files are its own:
// a Relu's is 0, a HardSwish's that outside of [-3, 3], and else the one on the left. Values at a
// kink are not rare: a convolution of zeros gives zeros.

WEFT_REGISTER_OP(FloatFunction("LeakyRelu", 2)
                     .Attr("alpha", AttributeType::kFloat)
                     .Gradient(GradientBySlope([](const Algebra& a, const Attributes& attributes,
                                                  ValueId x, ValueId) {
                       const double alpha = attributes.Float("alpha", 0.01f);
                       return a.Where(a.LessOrEqual(x, 0), a.Number(alpha), a.Number(1));
                     })));

WEFT_REGISTER_OP(FloatFunction("Elu", 12)
                     .Attr("alpha", AttributeType::kFloat)
                     .Gradient(GradientBySlope([](const Algebra& a, const Attributes& attributes,
                                                  ValueId x, ValueId) {
                       const double alpha = attributes.Float("alpha", 1);
                       return a.Where(a.LessOrEqual(x, 0), a.Mul(alpha, a.Of("Exp", x)),
                                      a.Number(1));
                     })));

WEFT_REGISTER_OP(FloatFunction("Celu", 12)
                     .Attr("alpha", AttributeType::kFloat)
                     .Gradient(GradientBySlope([](const Algebra& a, const Attributes& attributes,
                                                  ValueId x, ValueId) {
                       const double alpha = attributes.Float("alpha", 1);
                       return a.Where(a.Less(x, 0), a.Of("Exp", a.Mul(1 / alpha, x)), a.Number(1));
                     })));

WEFT_REGISTER_OP(FloatFunction("Selu", 12)
                     .Attr("alpha", AttributeType::kFloat)
                     .Attr("gamma", AttributeType::kFloat)
                     .Gradient(GradientBySlope([](const Algebra& a, const Attributes& attributes,
                                                  ValueId x, ValueId) {
                       const double alpha = attributes.Float("alpha", 1.67326319217681884765625f);
                       const double gamma = attributes.Float("gamma", 1.05070102214813232421875f);
                       return a.Where(a.Greater(x, 0), a.Number(gamma),
                                      a.Mul(alpha * gamma, a.Of("Exp", x)));
                     })));

WEFT_REGISTER_OP(FloatFunction("HardSigmoid", 4)
                     .Attr("alpha", AttributeType::kFloat)
                     .Attr("beta", AttributeType::kFloat)
                     .Gradient(GradientBySlope([](const Algebra& a, const Attributes& attributes,
                                                  ValueId, ValueId y) {
                       const ValueId slope = a.Number(attributes.Float("alpha", 0.2f));
                       const ValueId zero = a.Number(0);
                       return a.Where(a.Greater(y, 0), a.Where(a.Less(y, 1), slope, zero), zero);
                     })));

WEFT_REGISTER_OP(FloatFunction("HardSwish", 5)
                     .Gradient(GradientBySlope([](const Algebra& a, const Attributes&, ValueId x,
                                                  ValueId) {
                       const ValueId middle = a.Add(0.5, a.Mul(1.0 / 3, x));
                       return a.Where(a.GreaterOrEqual(x, 3), a.Number(1),
                                      a.Where(a.LessOrEqual(x, -3), a.Number(0), middle));
                     })));

WEFT_REGISTER_OP(FloatFunction("Softplus", 20)
                     .Gradient(GradientBySlope([](const Algebra& a, const Attributes&, ValueId x,
                                                  ValueId) { return a.Of("Sigmoid", x); })));

WEFT_REGISTER_OP(FloatFunction("Softsign", 3)
                     .Gradient(GradientBySlope([](const Algebra& a, const Attributes&, ValueId x,
                                                  ValueId) {
                       return a.Of("Reciprocal", a.Square(a.Add(1, a.Of("Abs", x))));
                     })));

// t + x sigmoid(x) (1 - t^2), t = tanh(softplus(x))
WEFT_REGISTER_OP(FloatFunction("Mish", 40)
                     .Gradient(GradientBySlope([](const Algebra& a, const Attributes&, ValueId x,
                                                  ValueId) {
                       const ValueId t = a.Of("Tanh", a.Of("Softplus", x));
                       const ValueId rest = a.Mul(a.Of("Sigmoid", x), a.Sub(1, a.Square(t)));
                       return a.Add(t, a.Mul(x, rest));
                     })));

// x sigmoid(a x) has at x the slope that x sigmoid(x) has at a x.
absl::Status SwishGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const double alpha = context.node().attributes.Float("alpha", 1);
  const ValueId x = context.Input(0);
  const ValueId scaled = alpha == 1 ? x : Algebra(b, dy).Mul(alpha, x);
  context.SetInputGradient(0, b.WeftOp("SwishGrad", {dy, scaled}));
  return b.status();
}

WEFT_REGISTER_OP(
    FloatFunction("Swish", 15).Attr("alpha", AttributeType::kFloat).Gradient(SwishGradient));

WEFT_REGISTER_OP(FloatFunction("ThresholdedRelu", 1)
                     .Attr("alpha", AttributeType::kFloat)
                     .Gradient(GradientBySlope([](const Algebra& a, const Attributes& attributes,
                                                  ValueId x, ValueId) {
                       return a.Where(a.Greater(x, attributes.Float("alpha", 1)), a.Number(1),
                                      a.Number(0));
                     })));

WEFT_REGISTER_OP(OpSchema::Onnx("Shrink")
                     .Input("input", kNumericTypes)
                     .Output("output")
                     .Attr("bias", AttributeType::kFloat)
                     .Attr("lambd", AttributeType::kFloat)
                     .Infer(InferLikeFirstInput)
                     .Sharding(ElementwiseRule)
                     .CostOf(FlopsPerElement(3))
                     .InPlace(0, 0)
                     .Gradient(GradientBySlope([](const Algebra& a, const Attributes& attributes,
                                                  ValueId x, ValueId) {
                       const double threshold = attributes.Float("lambd", 0.5f);
                       const ValueId outside = a.Greater(a.Of("Abs", x), threshold);
                       return a.Where(outside, a.Number(1), a.Number(0));
                     })));

// ---- Gelu: x times the standard normal distribution function, or its approximation by tanh
// (Hendrycks and Gimpel, arXiv:1606.08415).

absl::Status InferGelu(InferenceContext& context) {
  const std::string form = context.attributes().String("approximate", "none");
  if (form != "none" && form != "tanh") {
    return context.Error(
        absl::StrCat("attribute approximate is '", form, "', expected 'none' or 'tanh'"));
  }
  return InferLikeFirstInput(context);
}

absl::Status GeluGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const bool by_tanh = context.node().attributes.String("approximate", "none") == "tanh";
  context.SetInputGradient(0,
                           b.WeftOp(by_tanh ? "TanhGeluGrad" : "GeluGrad", {dy, context.Input(0)}));
  return b.status();
}

WEFT_REGISTER_OP(FloatFunction("Gelu", 20)
                     .Attr("approximate", AttributeType::kString)
                     .Infer(InferGelu)
                     .Gradient(GeluGradient));

// ---- PRelu: the slope below zero is an operand that broadcasts to X.

absl::Status InferPRelu(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  WEFT_ASSIGN_OR_RETURN(const SymbolicShape broadcast, BroadcastInputs(context, {0, 1}));
  const SymbolicShape& x = context.InputShape(0);
  const std::optional<Shape> known = x.ToConcrete();
  if (known.has_value() && broadcast.ToConcrete().has_value() &&
      *broadcast.ToConcrete() != *known) {
    return context.Error(absl::StrCat("the slope, ", context.InputShape(1).ToString(),
                                      ", does not broadcast to X, ", x.ToString()));
  }
  return InferLikeFirstInput(context);
}

WEFT_REGISTER_OP(OpSchema::Onnx("PRelu")
                     .Input("X", kNumericTypes)
                     .Input("slope", kNumericTypes)
                     .Learnable()
                     .Output("Y")
                     .Infer(InferPRelu)
                     .Gradient(BinaryGradient(
                         [](GraphBuilder& b, const BinaryOperands& o) {
                           const Algebra a(b, o.dy);
                           return a.Where(a.LessOrEqual(o.a, 0), a.Mul(o.dy, o.b), o.dy);
                         },
                         [](GraphBuilder& b, const BinaryOperands& o) {
                           const Algebra a(b, o.dy);
                           return a.Where(a.Less(o.a, 0), a.Mul(o.dy, o.a), a.Number(0));
                         }))
                     .Sharding(ElementwiseRule)
                     .CostOf(FlopsPerElement(2))
                     .InPlace(0, 0));

// ---- Clip: the bounds are scalars that may be left out.

absl::Status InferClip(InferenceContext& context) {
  for (const int i : {1, 2}) {
    if (!context.HasInput(i)) continue;
    WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, i}));
    const std::optional<Shape> shape = context.InputShape(i).ToConcrete();
    if (shape.has_value() && shape->num_elements() != 1) {
      return context.Error(absl::StrCat("the bound in input ", i, " has the shape ",
                                        shape->ToString(), ", expected one element"));
    }
  }
  return InferLikeFirstInput(context);
}

// Only one bound decides an element: the upper one where they cross. An element at a bound is the
// bound's, so nothing arrives at x: as in PyTorch's relu6, hardtanh, and clamp between numbers.
absl::Status ClipGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const Algebra a(b, dy);
  const ValueId x = context.Input(0);
  const ValueId zero = a.Number(0);
  ValueId dx = dy;
  if (const ValueId low = context.Input(1); low.valid()) {
    const ValueId below = b.Op("LessOrEqual", {x, low});
    dx = a.Where(below, zero, dx);
    if (context.NeedsInputGradient(1)) {
      context.SetInputGradient(1, SumToLike(b, a.Where(below, dy, zero), low));
    }
  }
  if (const ValueId high = context.Input(2); high.valid()) {
    const ValueId above = b.Op("GreaterOrEqual", {x, high});
    dx = a.Where(above, zero, dx);
    if (context.NeedsInputGradient(2)) {
      context.SetInputGradient(2, SumToLike(b, a.Where(above, dy, zero), high));
    }
  }
  if (context.NeedsInputGradient(0)) context.SetInputGradient(0, dx);
  return b.status();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Clip")
                     .Input("input", kNumericTypes)
                     .OptionalInput("min", kNumericTypes)
                     .NeverLearnable()
                     .OptionalInput("max", kNumericTypes)
                     .NeverLearnable()
                     .Output("output")
                     .Infer(InferClip)
                     .Gradient(ClipGradient)
                     .CostOf(FlopsPerElement(2))
                     .InPlace(0, 0)
                     .Sharding([](const NodeView& view) -> absl::StatusOr<FactorRule> {
                       FactorRuleBuilder rule;
                       const std::vector<int> factors = rule.Factors(view.OutputShape(0));
                       rule.Input(factors);
                       for (int i = 1; i < view.num_inputs(); ++i) {
                         rule.ReplicatedInput(view.HasInput(i) ? view.InputShape(i) : Shape{});
                       }
                       return rule.Output(factors).Build();
                     }));

}  // namespace
}  // namespace weft
