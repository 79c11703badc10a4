// RMSprop (torch.optim.RMSprop).
#include "ops/defs/optimizer/optimizer.h"
#include "ops/defs/optimizer/update_operands.h"

namespace weft {
namespace {

OptimizerKind Rmsprop() {
  return {.name = "rmsprop",
          .help = "steps divided by the root of a running mean of squares",
          .learning_rate = 0.01,
          .options = {{.name = "alpha", .usual = 0.99, .help = "decay of the mean square"},
                      Epsilon(1e-8),
                      Momentum(0),
                      {.name = "centered",
                       .help = "divide by the standard deviation of gradients, not by their size",
                       .high = 2,
                       .is_switch = true,
                       .attribute = ""}},
          .slots = {{.name = "square", .non_negative = true},
                    {.name = "mean", .only_with = "centered"},
                    {.name = "velocity", .only_with = "momentum"}},
          .op = "RmspropUpdate"};
}
WEFT_REGISTER_OPTIMIZER(Rmsprop());

// g = g + weight_decay w;  s = alpha s + (1 - alpha) g^2;  d = g / (sqrt(s) + epsilon). With `mean`
// (centered): a = alpha a + (1 - alpha) g, and the root is that of s - a^2. With `velocity`:
// v = momentum v + d takes the place of d. w = w - learning_rate d.
WEFT_REGISTER_OP(UpdateOp(Rmsprop(), /*flops_per_element=*/12));

}  // namespace
}  // namespace weft
