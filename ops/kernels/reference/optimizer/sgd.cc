// SgdUpdate, element by element in double.
#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status SgdUpdate(ReferenceCall& call) {
  const double momentum = Hyperparameter(call.attributes(), "momentum");
  const bool is_first = call.has_input(5) && call.input(5)[0] == 1;
  const double dampening = is_first ? 0 : Hyperparameter(call.attributes(), "dampening");
  const double weight_decay = Hyperparameter(call.attributes(), "weight_decay");
  const bool nesterov = call.attributes().Int("nesterov", 0) != 0;
  const double learning_rate = call.input(2)[0];
  const double scale = call.has_input(4) ? call.input(4)[0] : 1;
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = call.input(0)[i];
    const double g = scale * (call.input(1)[i] + weight_decay * w);
    double direction = g;
    if (call.has_input(3)) {
      const double velocity = momentum * call.input(3)[i] + (1 - dampening) * g;
      if (call.has_output(1)) call.output(1)[i] = velocity;
      direction = nesterov ? g + momentum * velocity : velocity;
    }
    call.output(0)[i] = w - learning_rate * direction;
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "SgdUpdate", ReferenceKernel(SgdUpdate));

}  // namespace
}  // namespace weft::cpu
