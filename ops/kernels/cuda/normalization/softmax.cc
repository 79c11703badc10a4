// Softmax, LogSoftmax and their backward kernels.
#include <type_traits>

#include "ops/defs/rules/rules.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/line_plan.h"
#include "ops/kernels/cuda/normalization/softmax_launch.h"

namespace weft::cuda {
namespace {

template <typename T>
LinePlan SoftmaxPlanOf(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  const int axis = shape.rank() == 0 ? 0 : ConcreteAxis(context, "axis", -1, shape.rank());
  return LinePlan::Along(shape, axis, 16 / sizeof(T), !std::is_same_v<T, double>,
                         /*ragged=*/true);
}

template <bool log>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareSoftmax(const PrepareContext& context) {
  return PrepareByElement(
      context, context.InputDType(0), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan = SoftmaxPlanOf<T>(context)](const KernelContext& run) {
          const T* x = In<T>(run, 0);
          T* y = Out<T>(run, 0);
          return LaunchStatus(LaunchSoftmax(QueueOf(run), plan.For({x, y}), log, x, y),
                              log ? "LogSoftmax" : "Softmax");
        });
      });
}

template <bool log>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareSoftmaxGrad(const PrepareContext& context) {
  return PrepareByElement(
      context, context.InputDType(0), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan = SoftmaxPlanOf<T>(context)](const KernelContext& run) {
          const T* dy = In<T>(run, 0);
          const T* y = In<T>(run, 1);
          T* dx = Out<T>(run, 0);
          return LaunchStatus(
              LaunchSoftmaxGrad(QueueOf(run), plan.For({dy, y, dx}), log, dy, y, dx),
              log ? "LogSoftmaxGrad" : "SoftmaxGrad");
        });
      });
}

WEFT_REGISTER_KERNEL("", "Softmax", DeviceKind::kCuda, PrepareSoftmax<false>);
WEFT_REGISTER_KERNEL("", "LogSoftmax", DeviceKind::kCuda, PrepareSoftmax<true>);
WEFT_REGISTER_KERNEL(kWeftDomain, "SoftmaxGrad", DeviceKind::kCuda, PrepareSoftmaxGrad<false>);
WEFT_REGISTER_KERNEL(kWeftDomain, "LogSoftmaxGrad", DeviceKind::kCuda, PrepareSoftmaxGrad<true>);

}  // namespace
}  // namespace weft::cuda
