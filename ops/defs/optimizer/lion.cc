// Lion (Chen et al., 2023).
#include "ops/defs/optimizer/optimizer.h"
#include "ops/defs/optimizer/update_operands.h"

namespace weft {
namespace {

OptimizerKind Lion() {
  return {.name = "lion",
          .help = "steps by the sign of an averaged gradient",
          .learning_rate = 0.0001,
          .options = {Beta1(0.9), Beta2(0.99)},
          .slots = {{.name = "m"}},
          .op = "LionUpdate"};
}
WEFT_REGISTER_OPTIMIZER(Lion());

// The decay is decoupled: w = w - learning_rate weight_decay w;
// w = w - learning_rate sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g.
WEFT_REGISTER_OP(UpdateOp(Lion(), /*flops_per_element=*/9));

}  // namespace
}  // namespace weft
