// Gradient descent with momentum, and the Adam family, as ops: new values of a parameter and of
// what the optimizer remembers of it. The formulas are PyTorch's (torch.optim.SGD, Adam, AdamW).
#include "ops/defs/optimizer/update_operands.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr std::initializer_list<DType> kUpdateTypes = {DType::kFloat32, DType::kFloat64};

absl::Status InferSgdUpdate(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(InferUpdate(context, {2, 4, 5}));
  if (!context.HasInput(3) && context.attributes().Float("momentum", 0) != 0) {
    return context.Error("momentum needs the input velocity");
  }
  return CheckStatePair(context, 3, 1);
}

// Stochastic gradient descent, with velocity v (zeros before the first step):
//   g = scale (g + weight_decay w);  v = momentum v + (1 - dampening) g;
//   w = w - learning_rate d, where d = g + momentum v if nesterov, else v (g without velocity).
// `scale` is 1 when absent (the trust ratio of LARS and LAMB, when not). With `step`, the first
// step (1) is not dampened, as PyTorch has it, which starts with v = g.
WEFT_REGISTER_OP(UpdateOp("SgdUpdate")
                     .OptionalInput("velocity", kUpdateTypes)
                     .OptionalInput("scale", kUpdateTypes)
                     .NeverLearnable()
                     .OptionalInput("step", {DType::kInt64})
                     .Output("new_w")
                     .OptionalOutput("new_velocity")
                     .Attr("momentum", AttributeType::kFloat)
                     .Attr("nesterov", AttributeType::kInt)
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Attr("dampening", AttributeType::kFloat)
                     .Infer(InferSgdUpdate)
                     .Sharding(UpdateRule({2, 4, 5}))
                     .CostOf(FlopsPerElement(6))
                     .InPlace(0, 0)
                     .InPlace(3, 1));

absl::Status InferAdamUpdate(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(InferUpdate(context, {2, 3}));
  return CheckStatePair(context, 6, 3);
}

// Adam (Kingma and Ba, 2015) in step t = 1, 2, ..., with moments m and v (zeros before the first):
//   g = g + weight_decay w (only without `decoupled`);
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//   w = w - learning_rate weight_decay w (only with `decoupled`: AdamW, Loshchilov and Hutter,
//   2019); w = w - learning_rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon).
// With `v_max` (AMSGrad, Reddi et al., 2018), v_max = max(v_max, v) takes the place of v in the
// root.
WEFT_REGISTER_OP(UpdateOp("AdamUpdate")
                     .Input("step", {DType::kInt64})
                     .Input("m", kUpdateTypes)
                     .Input("v", kUpdateTypes)
                     .OptionalInput("v_max", kUpdateTypes)
                     .Output("new_w")
                     .Output("new_m")
                     .Output("new_v")
                     .OptionalOutput("new_v_max")
                     .Attr("beta1", AttributeType::kFloat)
                     .Attr("beta2", AttributeType::kFloat)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Attr("weight_decay", AttributeType::kFloat)
                     .Attr("decoupled", AttributeType::kInt)
                     .Infer(InferAdamUpdate)
                     .Sharding(UpdateRule({2, 3}))
                     .CostOf(FlopsPerElement(14))
                     .InPlace(0, 0)
                     .InPlace(4, 1)
                     .InPlace(5, 2)
                     .InPlace(6, 3));

}  // namespace
}  // namespace weft
