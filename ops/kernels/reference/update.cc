// The optimizers' rules as ops/defs/update.cc states them, element by element in double.
#include <cmath>

#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status SgdUpdate(ReferenceCall& call) {
  const double momentum = call.attributes().Float("momentum", 0);
  const double dampening = call.attributes().Float("dampening", 0);
  const double weight_decay = call.attributes().Float("weight_decay", 0);
  const bool nesterov = call.attributes().Int("nesterov", 0) != 0;
  const double learning_rate = call.input(2)[0];
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = call.input(0)[i];
    const double g = call.input(1)[i] + weight_decay * w;
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

absl::Status AdamUpdate(ReferenceCall& call) {
  const double beta1 = call.attributes().Float("beta1", 0.9f);
  const double beta2 = call.attributes().Float("beta2", 0.999f);
  const double epsilon = call.attributes().Float("epsilon", 1e-8f);
  const double weight_decay = call.attributes().Float("weight_decay", 0);
  const bool decoupled = call.attributes().Int("decoupled", 0) != 0;
  const double learning_rate = call.input(2)[0];
  const double step = call.input(3)[0];
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    double w = call.input(0)[i];
    double g = call.input(1)[i];
    if (!decoupled) g += weight_decay * w;
    const double m = beta1 * call.input(4)[i] + (1 - beta1) * g;
    const double v = beta2 * call.input(5)[i] + (1 - beta2) * g * g;
    if (decoupled) w -= learning_rate * weight_decay * w;
    const double mean = m / (1 - std::pow(beta1, step));
    const double square = v / (1 - std::pow(beta2, step));
    call.output(0)[i] = w - learning_rate * mean / (std::sqrt(square) + epsilon);
    call.output(1)[i] = m;
    call.output(2)[i] = v;
  }
  return absl::OkStatus();
}

absl::Status Scale(ReferenceCall& call) {
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    call.output(0)[i] = call.input(0)[i] * call.input(1)[0];
  }
  return absl::OkStatus();
}

absl::Status AddN(ReferenceCall& call) {
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    for (int k = 0; k < call.num_inputs(); ++k) call.output(0)[i] += call.input(k)[i];
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "SgdUpdate", ReferenceKernel(SgdUpdate));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "AdamUpdate", ReferenceKernel(AdamUpdate));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "Scale", ReferenceKernel(Scale));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "AddN", ReferenceKernel(AddN));

}  // namespace
}  // namespace weft::cpu
