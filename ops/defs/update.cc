// The optimizers' rules as ops: new values of a parameter and of what the optimizer remembers of
// it. The formulas are PyTorch's (torch.optim.SGD, Adam, AdamW).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/defs/rules.h"
#include "ops/defs/shape_dims.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Input i must have the type of w, input 0.
absl::Status CheckLikeWeight(const InferenceContext& context, int i, const char* name) {
  const ValueType& weight = context.InputType(0);
  const ValueType& type = context.InputType(i);
  const std::optional<Shape> expected = weight.shape.ToConcrete();
  const std::optional<Shape> actual = type.shape.ToConcrete();
  const bool same_shape = !expected.has_value() || !actual.has_value() || *expected == *actual;
  if (same_shape && type.dtype == weight.dtype) return absl::OkStatus();
  return context.Error(absl::StrCat("input ", name, " is ", type.ToString(),
                                    "; it must have the type of w, ", weight.ToString()));
}

absl::Status CheckScalar(const InferenceContext& context, int i, const char* name) {
  const std::optional<Shape> shape = context.InputShape(i).ToConcrete();
  if (!shape.has_value() || shape->num_elements() == 1) return absl::OkStatus();
  return context.Error(absl::StrCat("input ", name, " is ", context.InputType(i).ToString(),
                                    "; it must be a scalar"));
}

// Every tensor input and all outputs have the factors of w; the scalars have none.
absl::StatusOr<FactorRule> UpdateRule(const NodeView& view, const std::vector<int>& scalars) {
  FactorRuleBuilder rule;
  const std::vector<int> factors = rule.Factors(view.InputShape(0));
  for (int i = 0; i < view.num_inputs(); ++i) {
    const bool is_scalar = std::find(scalars.begin(), scalars.end(), i) != scalars.end();
    if (is_scalar || !view.HasInput(i)) {
      rule.ReplicatedInput(view.InputShape(i));
    } else {
      rule.Input(factors);
    }
  }
  for (int i = 0; i < view.num_outputs(); ++i) {
    rule.Output(view.HasOutput(i) ? factors : std::vector<int>());
  }
  return rule.Build();
}

// ---- SgdUpdate

absl::Status InferSgdUpdate(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckLikeWeight(context, 1, "g"));
  WEFT_RETURN_IF_ERROR(CheckScalar(context, 2, "learning_rate"));
  const bool has_velocity = context.HasInput(3);
  if (has_velocity) {
    WEFT_RETURN_IF_ERROR(CheckLikeWeight(context, 3, "velocity"));
  } else if (context.attributes().Float("momentum", 0) != 0) {
    return context.Error("momentum needs the input velocity");
  }
  context.SetOutput(0, context.InputType(0));
  if (!context.HasOutput(1)) return absl::OkStatus();
  if (!has_velocity) return context.Error("output new_velocity needs the input velocity");
  context.SetOutput(1, context.InputType(3));
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> SgdUpdateRule(const NodeView& view) { return UpdateRule(view, {2}); }

// Stochastic gradient descent, with velocity v (zeros before the first step):
//   g = g + weight_decay w;  v = momentum v + (1 - dampening) g;
//   w = w - learning_rate d, where d = g + momentum v if nesterov, else v (g without velocity).
// PyTorch starts with v = g instead, which is the same unless dampening is used.
WEFT_REGISTER_OP(OpSchema::Weft("SgdUpdate")
                     .Input("w", {DType::kFloat32, DType::kFloat64})
                     .Input("g", {DType::kFloat32, DType::kFloat64})
                     .Input("learning_rate", {DType::kFloat32, DType::kFloat64})
                     .NeverLearnable()
                     .OptionalInput("velocity", {DType::kFloat32, DType::kFloat64})
                     .Output("new_w")
                     .OptionalOutput("new_velocity")
                     .Attr("momentum", AttributeType::kFloat)
                     .Attr("nesterov", AttributeType::kInt)
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Attr("dampening", AttributeType::kFloat)
                     .Infer(InferSgdUpdate)
                     .NoGradient()
                     .Sharding(SgdUpdateRule)
                     .CostOf(FlopsPerElement(6))
                     .InPlace(0, 0)
                     .InPlace(3, 1));

// ---- AdamUpdate

absl::Status InferAdamUpdate(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckLikeWeight(context, 1, "g"));
  WEFT_RETURN_IF_ERROR(CheckScalar(context, 2, "learning_rate"));
  WEFT_RETURN_IF_ERROR(CheckScalar(context, 3, "step"));
  WEFT_RETURN_IF_ERROR(CheckLikeWeight(context, 4, "m"));
  WEFT_RETURN_IF_ERROR(CheckLikeWeight(context, 5, "v"));
  for (int i = 0; i < 3; ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, context.InputType(0));
  }
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> AdamUpdateRule(const NodeView& view) { return UpdateRule(view, {2, 3}); }

// Adam (Kingma and Ba, 2015) in step t = 1, 2, ..., with moments m and v (zeros before the first):
//   g = g + weight_decay w (only without `decoupled`);
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//   w = w - learning_rate weight_decay w (only with `decoupled`: AdamW, Loshchilov and Hutter,
//   2019); w = w - learning_rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon).
WEFT_REGISTER_OP(OpSchema::Weft("AdamUpdate")
                     .Input("w", {DType::kFloat32, DType::kFloat64})
                     .Input("g", {DType::kFloat32, DType::kFloat64})
                     .Input("learning_rate", {DType::kFloat32, DType::kFloat64})
                     .NeverLearnable()
                     .Input("step", {DType::kInt64})
                     .Input("m", {DType::kFloat32, DType::kFloat64})
                     .Input("v", {DType::kFloat32, DType::kFloat64})
                     .Output("new_w")
                     .Output("new_m")
                     .Output("new_v")
                     .Attr("beta1", AttributeType::kFloat)
                     .Attr("beta2", AttributeType::kFloat)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Attr("decoupled", AttributeType::kInt)
                     .Infer(InferAdamUpdate)
                     .NoGradient()
                     .Sharding(AdamUpdateRule)
                     .CostOf(FlopsPerElement(14))
                     .InPlace(0, 0)
                     .InPlace(4, 1)
                     .InPlace(5, 2));

}  // namespace
}  // namespace weft
