// Det and DetGrad.
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/movement/determinant_launch.h"

namespace weft::cuda {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDet(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  DeterminantCall call;
  call.n = shape.dim(shape.rank() - 1);
  call.matrices = context.OutputShape(0).num_elements();
  const DType dtype = context.InputDType(0);
  return PrepareByElement(context, dtype, FloatElements(),
                          [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakeKernel(
                                [=](const KernelContext& run) {
                                  DeterminantCall now = call;
                                  now.queue = QueueOf(run);
                                  now.x = run.inputs[0];
                                  now.y = run.outputs[0];
                                  now.workspace = run.workspace;
                                  return LaunchStatus(LaunchDeterminant(dtype, now), "Det");
                                },
                                DeterminantBytes(call.matrices, call.n));
                          });
}
WEFT_REGISTER_KERNEL("", "Det", DeviceKind::kCuda, PrepareDet);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDetGrad(const PrepareContext& context) {
  const Shape& shape = context.InputShape(1);
  DeterminantCall call;
  call.n = shape.dim(shape.rank() - 1);
  call.matrices = call.n == 0 ? 0 : context.InputShape(0).num_elements();
  const DType dtype = context.InputDType(1);
  return PrepareByElement(context, dtype, FloatElements(),
                          [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakeKernel(
                                [=](const KernelContext& run) {
                                  DeterminantCall now = call;
                                  now.queue = QueueOf(run);
                                  now.dy = run.inputs[0];
                                  now.x = run.inputs[1];
                                  now.y = run.outputs[0];
                                  now.workspace = run.workspace;
                                  return LaunchStatus(LaunchDeterminantGrad(dtype, now), "DetGrad");
                                },
                                CofactorBytes(call.matrices, call.n));
                          });
}
WEFT_REGISTER_KERNEL("ai.weft", "DetGrad", DeviceKind::kCuda, PrepareDetGrad);

}  // namespace
}  // namespace weft::cuda
