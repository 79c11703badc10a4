// CausalConvWithState.
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/conv/causal_launch.h"

namespace weft::cuda {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCausalConv(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  CausalConvCall call;
  call.rows = x.ProductOf(0, 2);
  call.channels = x.dim(1);
  call.length = x.dim(2);
  call.taps = context.InputShape(1).dim(2);
  call.has_silu = context.attributes().String("activation", "none") != "none";
  const bool has_bias = context.HasInput(2);
  const bool has_past = context.HasInput(3);
  const bool wants_present = context.HasOutput(1);
  const DType dtype = context.InputDType(0);
  for (int i = 1; i < context.num_inputs(); ++i) {
    if (context.HasInput(i) && context.InputDType(i) != dtype) {
      return context.Unimplemented("the operands have several types");
    }
  }
  return PrepareByElement(
      context, dtype, FloatElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          CausalConvCall now = call;
          now.queue = QueueOf(run);
          now.x = run.inputs[0];
          now.w = run.inputs[1];
          now.bias = has_bias ? run.inputs[2] : nullptr;
          now.past = has_past ? run.inputs[3] : nullptr;
          now.y = run.outputs[0];
          now.present = wants_present ? run.outputs[1] : nullptr;
          return LaunchStatus(LaunchCausalConv(dtype, now), "CausalConvWithState");
        });
      });
}
WEFT_REGISTER_KERNEL("", "CausalConvWithState", DeviceKind::kCuda, PrepareCausalConv);

}  // namespace
}  // namespace weft::cuda
