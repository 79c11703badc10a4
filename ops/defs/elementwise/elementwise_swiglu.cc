// SwiGLU (operator set 28): a value times a gate's Swish (Shazeer, arXiv:2002.05202).
#include "absl/strings/str_cat.h"
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Nothing broadcasts: Y has the one shape of A and B.
absl::Status InferSwiGlu(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  const SymbolicShape& a = context.InputShape(0);
  const SymbolicShape& b = context.InputShape(1);
  if (!a.has_rank() || !b.has_rank()) {
    context.SetOutput(0, context.InputType(a.has_rank() ? 0 : 1));
    return absl::OkStatus();
  }
  bool fits = a.rank() == b.rank();
  for (int i = 0; fits && i < a.rank(); ++i) {
    fits = !a.dim(i).is_known() || !b.dim(i).is_known() || a.dim(i) == b.dim(i);
  }
  if (!fits) {
    return context.Error(absl::StrCat("the gate is ", a.ToString(), " and the value ", b.ToString(),
                                      ", expected one shape for both"));
  }
  return InferLikeFirstInput(context);
}

// With s = sigmoid(alpha a): y = a s b, dy/db = a s, dy/da = b (s + alpha a s (1 - s)).
absl::Status SwiGluGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& builder = context.builder();
  const Algebra algebra(builder, dy);
  const double alpha = context.node().attributes.Float("alpha", 1);
  const ValueId a = context.Input(0);
  const ValueId scaled = alpha == 1 ? a : algebra.Mul(alpha, a);
  const ValueId s = algebra.Of("Sigmoid", scaled);
  if (context.NeedsInputGradient(0)) {
    const ValueId bend = algebra.Mul(scaled, algebra.Mul(s, algebra.Sub(1, s)));
    const ValueId slope = algebra.Add(s, bend);
    context.SetInputGradient(0, algebra.Mul(algebra.Mul(dy, context.Input(1)), slope));
  }
  if (context.NeedsInputGradient(1)) {
    context.SetInputGradient(1, algebra.Mul(dy, algebra.Mul(a, s)));
  }
  return builder.status();
}

WEFT_REGISTER_OP(OpSchema::Onnx("SwiGLU")
                     .Input("A", kFloatTypes)
                     .Input("B", kFloatTypes)
                     .Output("Y")
                     .Attr("alpha", AttributeType::kFloat)
                     .Infer(InferSwiGlu)
                     .Gradient(SwiGluGradient)
                     .Sharding(LinearElementwiseRule({{1}}))
                     .CostOf(FlopsPerElement(16))
                     .InPlace(0, 0)
                     .InPlace(1, 0));

}  // namespace
}  // namespace weft
