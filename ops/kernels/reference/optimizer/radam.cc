// RadamUpdate, element by element in double.
#include <cmath>

#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status RadamUpdate(ReferenceCall& call) {
  const double beta1 = Hyperparameter(call.attributes(), "beta1");
  const double beta2 = Hyperparameter(call.attributes(), "beta2");
  const double epsilon = Hyperparameter(call.attributes(), "epsilon");
  const double weight_decay = Hyperparameter(call.attributes(), "weight_decay");
  const double learning_rate = call.input(2)[0];
  const double t = call.input(3)[0];
  const double r_max = 2 / (1 - beta2) - 1;
  const double r = r_max - 2 * t * std::pow(beta2, t) / (1 - std::pow(beta2, t));
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = call.input(0)[i];
    const double g = call.input(1)[i] + weight_decay * w;
    const double m = beta1 * call.input(4)[i] + (1 - beta1) * g;
    const double v = beta2 * call.input(5)[i] + (1 - beta2) * g * g;
    double direction = m / (1 - std::pow(beta1, t));
    if (r > 5) {
      direction *= std::sqrt((r - 4) * (r - 2) * r_max / ((r_max - 4) * (r_max - 2) * r));
      direction *= std::sqrt(1 - std::pow(beta2, t)) / (std::sqrt(v) + epsilon);
    }
    call.output(0)[i] = w - learning_rate * direction;
    call.output(1)[i] = m;
    call.output(2)[i] = v;
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "RadamUpdate", ReferenceKernel(RadamUpdate));

}  // namespace
}  // namespace weft::cpu
