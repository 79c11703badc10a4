// AdagradUpdate, element by element in double.
#include <cmath>

#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status AdagradUpdate(ReferenceCall& call) {
  const double weight_decay = Hyperparameter(call.attributes(), "weight_decay");
  const double epsilon = Hyperparameter(call.attributes(), "epsilon");
  const double step = call.input(3)[0];
  const double rate =
      call.input(2)[0] / (1 + (step - 1) * Hyperparameter(call.attributes(), "rate_decay"));
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = call.input(0)[i];
    const double g = call.input(1)[i] + weight_decay * w;
    const double sum = call.input(4)[i] + g * g;
    call.output(0)[i] = w - rate * g / (std::sqrt(sum) + epsilon);
    call.output(1)[i] = sum;
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "AdagradUpdate", ReferenceKernel(AdagradUpdate));

}  // namespace
}  // namespace weft::cpu
