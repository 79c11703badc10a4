// Scale and AddN, element by element in double.
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

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

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "Scale", ReferenceKernel(Scale));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "AddN", ReferenceKernel(AddN));

}  // namespace
}  // namespace weft::cpu
