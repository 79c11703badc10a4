// RAdam (Liu et al., 2020; torch.optim.RAdam).
#include "ops/defs/optimizer/optimizer.h"
#include "ops/defs/optimizer/update_operands.h"

namespace weft {
namespace {

OptimizerKind Radam() {
  return {.name = "radam",
          .help = "Adam with its own warm-up",
          .learning_rate = 0.001,
          .options = {Beta1(0.9), Beta2(0.999), Epsilon(1e-8)},
          .slots = {{.name = "m"}, {.name = "v", .non_negative = true}},
          .needs_step = true,
          .op = "RadamUpdate"};
}
WEFT_REGISTER_OPTIMIZER(Radam());

// In step t = 1, 2, ..., with moments m and v (zeros before the first):
//   g = g + weight_decay w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//   c = m / (1 - beta1^t);  r_max = 2 / (1 - beta2) - 1;  r = r_max - 2 t beta2^t / (1 - beta2^t).
// While r <= 5, v is of too few gradients: w = w - learning_rate c. Then
//   w = w - learning_rate c s sqrt(1 - beta2^t) / (sqrt(v) + epsilon) with
//   s = sqrt((r - 4) (r - 2) r_max / ((r_max - 4) (r_max - 2) r)).
WEFT_REGISTER_OP(UpdateOp(Radam(), /*flops_per_element=*/14));

}  // namespace
}  // namespace weft
