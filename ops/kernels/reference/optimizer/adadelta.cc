// AdadeltaUpdate, element by element in double.
#include <cmath>

#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status AdadeltaUpdate(ReferenceCall& call) {
  const double weight_decay = Hyperparameter(call.attributes(), "weight_decay");
  const double rho = Hyperparameter(call.attributes(), "rho");
  const double epsilon = Hyperparameter(call.attributes(), "epsilon");
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = call.input(0)[i];
    const double g = call.input(1)[i] + weight_decay * w;
    const double square = rho * call.input(3)[i] + (1 - rho) * g * g;
    const double delta = std::sqrt(call.input(4)[i] + epsilon) / std::sqrt(square + epsilon) * g;
    call.output(0)[i] = w - call.input(2)[0] * delta;
    call.output(1)[i] = square;
    call.output(2)[i] = rho * call.input(4)[i] + (1 - rho) * delta * delta;
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "AdadeltaUpdate", ReferenceKernel(AdadeltaUpdate));

}  // namespace
}  // namespace weft::cpu
