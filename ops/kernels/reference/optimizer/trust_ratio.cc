// TrustRatio, element by element in double.
#include <cmath>

#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status TrustRatio(ReferenceCall& call) {
  const double coefficient = Hyperparameter(call.attributes(), "coefficient", 1);
  const double weight_decay = Hyperparameter(call.attributes(), "weight_decay");
  const double epsilon = Hyperparameter(call.attributes(), "epsilon");
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = std::sqrt(call.input(0)[i]);
    const double u = std::sqrt(call.input(1)[i]);
    const double below = u + weight_decay * w + epsilon;
    call.output(0)[i] = w != 0 && u != 0 ? coefficient * w / below : 1;
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "TrustRatio", ReferenceKernel(TrustRatio));

}  // namespace
}  // namespace weft::cpu
