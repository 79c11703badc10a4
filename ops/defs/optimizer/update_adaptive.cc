// The optimizers that scale each element's step by the gradients it has seen, those that scale each
// parameter's by norms, and the sign of the momentum. Formulas: torch.optim.Adagrad, Adadelta,
// RMSprop; You et al. 2017 (LARS) and 2020 (LAMB); Chen et al. 2023 (Lion).
#include "ops/defs/optimizer/update_operands.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr std::initializer_list<DType> kUpdateTypes = {DType::kFloat32, DType::kFloat64};

InferFn InferWithScalars(std::vector<int> scalars) {
  return [scalars = std::move(scalars)](InferenceContext& context) {
    return InferUpdate(context, scalars);
  };
}

// In all of them: g = g + weight_decay w first, unless it says otherwise.

// In step t = 1, 2, ...: s = s + g^2;
//   w = w - learning_rate / (1 + (t - 1) rate_decay) g / (sqrt(s) + epsilon).
WEFT_REGISTER_OP(UpdateOp("AdagradUpdate")
                     .Input("step", {DType::kInt64})
                     .Input("sum", kUpdateTypes)
                     .Output("new_w")
                     .Output("new_sum")
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Attr("rate_decay", AttributeType::kFloat)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Infer(InferWithScalars({2, 3}))
                     .Sharding(UpdateRule({2, 3}))
                     .CostOf(FlopsPerElement(8))
                     .InPlace(0, 0)
                     .InPlace(4, 1));

// s = rho s + (1 - rho) g^2;  d = sqrt(a + epsilon) / sqrt(s + epsilon) g;
// a = rho a + (1 - rho) d^2;  w = w - learning_rate d.
WEFT_REGISTER_OP(UpdateOp("AdadeltaUpdate")
                     .Input("square", kUpdateTypes)
                     .Input("delta", kUpdateTypes)
                     .Output("new_w")
                     .Output("new_square")
                     .Output("new_delta")
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Attr("rho", AttributeType::kFloat)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Infer(InferWithScalars({2}))
                     .Sharding(UpdateRule({2}))
                     .CostOf(FlopsPerElement(15))
                     .InPlace(0, 0)
                     .InPlace(3, 1)
                     .InPlace(4, 2));

absl::Status InferRmspropUpdate(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(InferUpdate(context, {2}));
  WEFT_RETURN_IF_ERROR(CheckStatePair(context, 4, 2));
  if (!context.HasInput(5) && context.attributes().Float("momentum", 0) != 0) {
    return context.Error("momentum needs the input velocity");
  }
  return CheckStatePair(context, 5, 3);
}

// s = alpha s + (1 - alpha) g^2;  d = g / (sqrt(s) + epsilon). With `mean` (centered):
// a = alpha a + (1 - alpha) g, and the root is that of s - a^2. With `velocity`: v = momentum v + d
// takes the place of d. w = w - learning_rate d.
WEFT_REGISTER_OP(UpdateOp("RmspropUpdate")
                     .Input("square", kUpdateTypes)
                     .OptionalInput("mean", kUpdateTypes)
                     .OptionalInput("velocity", kUpdateTypes)
                     .Output("new_w")
                     .Output("new_square")
                     .OptionalOutput("new_mean")
                     .OptionalOutput("new_velocity")
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Attr("alpha", AttributeType::kFloat)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Attr("momentum", AttributeType::kFloat)
                     .Infer(InferRmspropUpdate)
                     .Sharding(UpdateRule({2}))
                     .CostOf(FlopsPerElement(12))
                     .InPlace(0, 0)
                     .InPlace(3, 1)
                     .InPlace(4, 2)
                     .InPlace(5, 3));

// The decay is decoupled: w = w - learning_rate weight_decay w;
// w = w - learning_rate sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g.
WEFT_REGISTER_OP(UpdateOp("LionUpdate")
                     .Input("m", kUpdateTypes)
                     .Output("new_w")
                     .Output("new_m")
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Attr("beta1", AttributeType::kFloat)
                     .Attr("beta2", AttributeType::kFloat)
                     .Infer(InferWithScalars({2}))
                     .Sharding(UpdateRule({2}))
                     .CostOf(FlopsPerElement(9))
                     .InPlace(0, 0)
                     .InPlace(3, 1));

// Adam's step before it is scaled, and with the decay as a part of it:
//   u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay w.
// LAMB goes on with w = w - learning_rate TrustRatio(|w|^2, |u|^2) u.
WEFT_REGISTER_OP(OpSchema::Weft("LambDirection")
                     .Input("w", kUpdateTypes)
                     .Input("g", kUpdateTypes)
                     .Input("step", {DType::kInt64})
                     .Input("m", kUpdateTypes)
                     .Input("v", kUpdateTypes)
                     .Output("u")
                     .Output("new_m")
                     .Output("new_v")
                     .Attr("beta1", AttributeType::kFloat)
                     .Attr("beta2", AttributeType::kFloat)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Infer(InferWithScalars({2}))
                     .NoGradient("optimizers end a step")
                     .Sharding(UpdateRule({2}))
                     .CostOf(FlopsPerElement(14))
                     .InPlace(1, 0)
                     .InPlace(3, 1)
                     .InPlace(4, 2));

// From two squared norms, element by element: coefficient |w| / (|u| + weight_decay |w| + epsilon),
// or 1 where one of the norms is zero.
WEFT_REGISTER_OP(OpSchema::Weft("TrustRatio")
                     .Input("w_square", kUpdateTypes)
                     .Input("u_square", kUpdateTypes)
                     .Output("ratio")
                     .Attr("coefficient", AttributeType::kFloat)
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Infer(InferBroadcast)
                     .NoGradient("optimizers end a step")
                     .Sharding(ElementwiseRule));

// average = decay average + (1 - decay) w
WEFT_REGISTER_OP(OpSchema::Weft("EmaUpdate")
                     .Input("average", kUpdateTypes)
                     .Input("w", kUpdateTypes)
                     .Output("new_average")
                     .Attr("decay", AttributeType::kFloat, /*required=*/true)
                     .Infer(InferWithScalars({}))
                     .NoGradient("optimizers end a step")
                     .Sharding(UpdateRule({}))
                     .CostOf(FlopsPerElement(3))
                     .InPlace(0, 0));

// The factor of the learning rate in step t = 1, 2, ... of a schedule
// (ops/defs/optimizer/rate_schedule.h).
WEFT_REGISTER_OP(OpSchema::Weft("RateFactor")
                     .Input("step", {DType::kInt64})
                     .Output("factor")
                     .Attr("kind", AttributeType::kString, /*required=*/true)
                     .Attr("warmup", AttributeType::kInt)
                     .Attr("total", AttributeType::kInt)
                     .Attr("every", AttributeType::kInt)
                     .Attr("gamma", AttributeType::kFloat)
                     .Attr("power", AttributeType::kFloat)
                     .Attr("end", AttributeType::kFloat)
                     .Infer([](InferenceContext& context) {
                       context.SetOutput(0, DType::kFloat32, context.InputShape(0));
                       return absl::OkStatus();
                     })
                     .NoGradient("made of step numbers alone")
                     .Sharding(ElementwiseRule));

}  // namespace
}  // namespace weft
