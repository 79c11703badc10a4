// EmaUpdate, element by element in double.
#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status EmaUpdate(ReferenceCall& call) {
  const double decay = Hyperparameter(call.attributes(), "decay");
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    call.output(0)[i] = decay * call.input(0)[i] + (1 - decay) * call.input(1)[i];
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "EmaUpdate", ReferenceKernel(EmaUpdate));

}  // namespace
}  // namespace weft::cpu
