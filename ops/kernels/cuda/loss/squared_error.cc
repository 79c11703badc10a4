// MeanSquaredError, SquaredErrorSum and their backward kernel.
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/fold_plan.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/loss/squared_error_launch.h"

namespace weft::cuda {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSquaredError(const PrepareContext& context,
                                                            double divisor) {
  const int64_t elements = context.InputShape(0).num_elements();
  return PrepareByElement(
      context, context.InputDType(0), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        const FoldPlan plan = FoldPlan::Make(Shape{elements}, {true}, 16 / sizeof(T));
        return MakeKernel(
            [plan, divisor](const KernelContext& run) {
              const T* a = In<T>(run, 0);
              const T* b = In<T>(run, 1);
              return LaunchStatus(LaunchSquaredError(QueueOf(run), plan.For({a, b}), divisor, a, b,
                                                     Out<T>(run, 0), run.workspace),
                                  "a squared error");
            },
            plan.workspace_bytes(kSquaredErrorTotalBytes));
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSquaredErrorSum(const PrepareContext& context) {
  return PrepareSquaredError(context, 1);
}

// Divides by the global count, so that the results of shards add up.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareMeanSquaredError(const PrepareContext& context) {
  return PrepareSquaredError(
      context, static_cast<double>(context.InputSlice(0).global_shape.num_elements()));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSquaredErrorGrad(const PrepareContext& context) {
  const int64_t elements = context.OutputShape(0).num_elements();
  return PrepareByElement(
      context, context.InputDType(1), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([elements](const KernelContext& run) {
          const T* a = In<T>(run, 1);
          const T* b = In<T>(run, 2);
          T* da = Out<T>(run, 0);
          const bool packed = elements % (16 / sizeof(T)) == 0 && AreAligned({a, b, da});
          return LaunchStatus(
              LaunchSquaredErrorGrad(QueueOf(run), elements, packed, In<T>(run, 0), a, b, da),
              "SquaredErrorGrad");
        });
      });
}

WEFT_REGISTER_KERNEL(kWeftDomain, "SquaredErrorSum", DeviceKind::kCuda, PrepareSquaredErrorSum);
WEFT_REGISTER_KERNEL(kWeftDomain, "MeanSquaredError", DeviceKind::kCuda, PrepareMeanSquaredError);
WEFT_REGISTER_KERNEL(kWeftDomain, "SquaredErrorGrad", DeviceKind::kCuda, PrepareSquaredErrorGrad);

}  // namespace
}  // namespace weft::cuda
