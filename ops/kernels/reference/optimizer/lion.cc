// LionUpdate, element by element in double.
#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status LionUpdate(ReferenceCall& call) {
  const double weight_decay = Hyperparameter(call.attributes(), "weight_decay");
  const double beta1 = Hyperparameter(call.attributes(), "beta1");
  const double beta2 = Hyperparameter(call.attributes(), "beta2");
  const double rate = call.input(2)[0];
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double g = call.input(1)[i];
    const double m = call.input(3)[i];
    const double mixed = beta1 * m + (1 - beta1) * g;
    const double sign = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;
    call.output(0)[i] = call.input(0)[i] * (1 - rate * weight_decay) - rate * sign;
    call.output(1)[i] = beta2 * m + (1 - beta2) * g;
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "LionUpdate", ReferenceKernel(LionUpdate));

}  // namespace
}  // namespace weft::cpu
