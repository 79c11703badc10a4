// LAMB (You et al., 2020): Adam's direction, in steps that have a length by that of the weights.
#include "ops/defs/optimizer/optimizer.h"
#include "ops/defs/optimizer/trust_ratio.h"
#include "ops/defs/optimizer/update_operands.h"
#include "ops/defs/rules/rules.h"

namespace weft {
namespace {

ValueId AddLamb(UpdateSite& site) {
  const ValueId direction = site.AddOp("LambDirection", site.AllAttributes());
  const ValueId ratio = AddTrustRatio(site, direction, {});
  return site.AddOp("SgdUpdate", {}, {{"g", direction}, {"scale", ratio}, {"step", kNoValue}});
}

WEFT_REGISTER_OPTIMIZER({.name = "lamb",
                         .help = "Adam with steps scaled by the norm of each parameter",
                         .learning_rate = 0.001,
                         .options = {Beta1(0.9), Beta2(0.999), Epsilon(1e-6)},
                         .slots = {{.name = "m"}, {.name = "v", .non_negative = true}},
                         .needs_step = true,
                         .update = AddLamb});

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
                     .Infer(InferUpdate())
                     .NoGradient("optimizers end a step")
                     .Sharding(UpdateRule)
                     .CostOf(FlopsPerElement(14))
                     .InPlace(1, 0)
                     .InPlace(3, 1)
                     .InPlace(4, 2));

}  // namespace
}  // namespace weft
