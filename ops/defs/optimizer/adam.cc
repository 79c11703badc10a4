// Adam and its kin (torch.optim.Adam, AdamW).
#include "ops/defs/optimizer/optimizer.h"
#include "ops/defs/optimizer/update_operands.h"

namespace weft {
namespace {

OptimizerKind Adam(std::string name, std::string help, bool is_decoupled) {
  return {.name = std::move(name),
          .help = std::move(help),
          .learning_rate = 0.001,
          .options = {Beta1(0.9), Beta2(0.999), Epsilon(1e-8)},
          .slots = {{.name = "m"}, {.name = "v", .non_negative = true}},
          .needs_step = true,
          .op = "AdamUpdate",
          .attributes = {{"decoupled", int64_t{is_decoupled}}}};
}

OptimizerKind AmsGrad() {
  OptimizerKind kind = Adam("amsgrad", "Adam with the largest mean of squares so far", false);
  kind.slots.push_back({.name = "v_max", .non_negative = true});
  return kind;
}

WEFT_REGISTER_OPTIMIZER(Adam("adam", "running means of gradients and of their squares", false));
WEFT_REGISTER_OPTIMIZER(Adam("adamw", "Adam with a weight decay of its own", true));
WEFT_REGISTER_OPTIMIZER(AmsGrad());

// Adam (Kingma and Ba, 2015) in step t = 1, 2, ..., with moments m and v (zeros before the first):
//   g = g + weight_decay w (only without `decoupled`);
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//   w = w - learning_rate weight_decay w (only with `decoupled`: AdamW, Loshchilov and Hutter,
//   2019); w = w - learning_rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon).
// With `v_max` (AMSGrad, Reddi et al., 2018), v_max = max(v_max, v) takes the place of v in the
// root.
WEFT_REGISTER_OP(UpdateOp(Adam("adam", "", false), /*flops_per_element=*/14)
                     .OptionalInput("v_max", kUpdateTypes)
                     .OptionalOutput("new_v_max")
                     .InPlace(6, 3));

}  // namespace
}  // namespace weft
