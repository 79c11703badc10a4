// LpNormalization and LRN.
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/line_plan.h"
#include "ops/kernels/cuda/normalization/along_axis_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLpNormalization(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", -1), x.rank()));
  const bool squares = context.attributes().Int("p", 2) == 2;
  return PrepareByElement(
      context, context.InputDType(0), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        const LinePlan plan = LinePlan::Along(x, axis, 16 / sizeof(T), /*registers=*/false);
        return MakeKernel([plan, squares](const KernelContext& run) {
          const T* from = In<T>(run, 0);
          T* to = Out<T>(run, 0);
          return LaunchStatus(
              LaunchLpNormalization(QueueOf(run), plan.For({from, to}), squares, from, to),
              "LpNormalization");
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLrn(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const int64_t size = context.attributes().Int("size", 1);
  LrnPlan plan;
  plan.elements = x.num_elements();
  plan.channels = x.dim(1);
  plan.plane = x.ProductOf(2, x.rank());
  plan.before = (size - 1) / 2;
  plan.after = size / 2;
  plan.factor = context.attributes().Float("alpha", 0.0001f) / static_cast<double>(size);
  plan.beta = context.attributes().Float("beta", 0.75f);
  plan.bias = context.attributes().Float("bias", 1.0f);
  return PrepareByElement(
      context, context.InputDType(0), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan](const KernelContext& run) {
          return LaunchStatus(LaunchLrn(QueueOf(run), plan, In<T>(run, 0), Out<T>(run, 0)), "LRN");
        });
      });
}

WEFT_REGISTER_KERNEL("", "LpNormalization", DeviceKind::kCuda, PrepareLpNormalization);
WEFT_REGISTER_KERNEL("", "LRN", DeviceKind::kCuda, PrepareLrn);

}  // namespace
}  // namespace weft::cuda
