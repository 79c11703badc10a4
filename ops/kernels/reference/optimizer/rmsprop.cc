// RmspropUpdate, element by element in double.
#include <cmath>

#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status RmspropUpdate(ReferenceCall& call) {
  const double weight_decay = Hyperparameter(call.attributes(), "weight_decay");
  const double alpha = Hyperparameter(call.attributes(), "alpha");
  const double epsilon = Hyperparameter(call.attributes(), "epsilon");
  const double momentum = Hyperparameter(call.attributes(), "momentum");
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = call.input(0)[i];
    const double g = call.input(1)[i] + weight_decay * w;
    const double square = alpha * call.input(3)[i] + (1 - alpha) * g * g;
    call.output(1)[i] = square;
    double spread = square;
    if (call.has_input(4)) {
      const double mean = alpha * call.input(4)[i] + (1 - alpha) * g;
      call.output(2)[i] = mean;
      spread -= mean * mean;
    }
    double direction = g / (std::sqrt(spread) + epsilon);
    if (call.has_input(5)) {
      direction += momentum * call.input(5)[i];
      call.output(3)[i] = direction;
    }
    call.output(0)[i] = w - call.input(2)[0] * direction;
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "RmspropUpdate", ReferenceKernel(RmspropUpdate));

}  // namespace
}  // namespace weft::cpu
