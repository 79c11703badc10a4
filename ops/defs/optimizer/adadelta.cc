// Adadelta (torch.optim.Adadelta).
#include "ops/defs/optimizer/optimizer.h"
#include "ops/defs/optimizer/update_operands.h"

namespace weft {
namespace {

OptimizerKind Adadelta() {
  return {
      .name = "adadelta",
      .help = "steps are scaled by the mean size of earlier steps",
      .learning_rate = 1,
      .options = {{.name = "rho", .usual = 0.9, .help = "decay of the mean squares"},
                  Epsilon(1e-6)},
      .slots = {{.name = "square", .non_negative = true}, {.name = "delta", .non_negative = true}},
      .op = "AdadeltaUpdate"};
}
WEFT_REGISTER_OPTIMIZER(Adadelta());

// g = g + weight_decay w;  s = rho s + (1 - rho) g^2;
// d = sqrt(a + epsilon) / sqrt(s + epsilon) g;  a = rho a + (1 - rho) d^2;
// w = w - learning_rate d.
WEFT_REGISTER_OP(UpdateOp(Adadelta(), /*flops_per_element=*/15));

}  // namespace
}  // namespace weft
