// Adagrad (torch.optim.Adagrad).
#include "ops/defs/optimizer/optimizer.h"
#include "ops/defs/optimizer/update_operands.h"

namespace weft {
namespace {

OptimizerKind Adagrad() {
  return {.name = "adagrad",
          .help = "steps shrink with the sum of squares of an element's gradients",
          .learning_rate = 0.01,
          .options = {{.name = "lr-decay",
                       .help = "divides the learning rate by 1 + X (steps before this one)",
                       .high = 1e6,
                       .attribute = "rate_decay"},
                      Epsilon(1e-10),
                      {.name = "initial-accumulator",
                       .help = "initial value of the sums of squares",
                       .high = 1e6,
                       .attribute = ""}},
          .slots = {{.name = "sum", .starts_at = "initial-accumulator", .non_negative = true}},
          .needs_step = true,
          .op = "AdagradUpdate"};
}
WEFT_REGISTER_OPTIMIZER(Adagrad());

// In step t = 1, 2, ...: g = g + weight_decay w;  s = s + g^2;
//   w = w - learning_rate / (1 + (t - 1) rate_decay) g / (sqrt(s) + epsilon).
WEFT_REGISTER_OP(UpdateOp(Adagrad(), /*flops_per_element=*/8));

}  // namespace
}  // namespace weft
