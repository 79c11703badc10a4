// AdamUpdate, element by element in double.
#include <algorithm>
#include <cmath>

#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status AdamUpdate(ReferenceCall& call) {
  const double beta1 = Hyperparameter(call.attributes(), "beta1");
  const double beta2 = Hyperparameter(call.attributes(), "beta2");
  const double epsilon = Hyperparameter(call.attributes(), "epsilon");
  const double weight_decay = Hyperparameter(call.attributes(), "weight_decay");
  const bool decoupled = call.attributes().Int("decoupled", 0) != 0;
  const double learning_rate = call.input(2)[0];
  const double step = call.input(3)[0];
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    double w = call.input(0)[i];
    double g = call.input(1)[i];
    if (!decoupled) g += weight_decay * w;
    const double m = beta1 * call.input(4)[i] + (1 - beta1) * g;
    const double v = beta2 * call.input(5)[i] + (1 - beta2) * g * g;
    double largest = v;
    if (call.has_input(6)) {
      largest = std::max(call.input(6)[i], v);
      call.output(3)[i] = largest;
    }
    if (decoupled) w -= learning_rate * weight_decay * w;
    const double mean = m / (1 - std::pow(beta1, step));
    const double square = largest / (1 - std::pow(beta2, step));
    call.output(0)[i] = w - learning_rate * mean / (std::sqrt(square) + epsilon);
    call.output(1)[i] = m;
    call.output(2)[i] = v;
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "AdamUpdate", ReferenceKernel(AdamUpdate));

}  // namespace
}  // namespace weft::cpu
