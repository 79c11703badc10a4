// LambDirection, element by element in double.
#include <cmath>

#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status LambDirection(ReferenceCall& call) {
  const double weight_decay = Hyperparameter(call.attributes(), "weight_decay");
  const double beta1 = Hyperparameter(call.attributes(), "beta1");
  const double beta2 = Hyperparameter(call.attributes(), "beta2");
  const double epsilon = Hyperparameter(call.attributes(), "epsilon");
  const double step = call.input(2)[0];
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double g = call.input(1)[i];
    const double m = beta1 * call.input(3)[i] + (1 - beta1) * g;
    const double v = beta2 * call.input(4)[i] + (1 - beta2) * g * g;
    const double mean = m / (1 - std::pow(beta1, step));
    const double root = std::sqrt(v / (1 - std::pow(beta2, step)));
    call.output(0)[i] = mean / (root + epsilon) + weight_decay * call.input(0)[i];
    call.output(1)[i] = m;
    call.output(2)[i] = v;
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "LambDirection", ReferenceKernel(LambDirection));

}  // namespace
}  // namespace weft::cpu
