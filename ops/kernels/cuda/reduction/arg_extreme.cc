// ArgMax, ArgMin, Hardmax and TopK.
#include <string>
#include <vector>

#include "ops/defs/rules/rules.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/fold_plan.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/line_plan.h"
#include "ops/kernels/cuda/reduction/arg_extreme_launch.h"
#include "ops/kernels/cuda/reduction/top_k_launch.h"

namespace weft::cuda {
namespace {

template <bool smallest>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareArg(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  std::vector<bool> reduced(shape.rank(), false);
  if (shape.rank() > 0) reduced[ConcreteAxis(context, "axis", 0, shape.rank())] = true;
  const bool last = context.attributes().Int("select_last_index", 0) != 0;
  const DType dtype = context.InputDType(0);
  const FoldPlan plan = FoldPlan::Make(shape, reduced, ArgWidth(dtype));
  return PrepareByElement(
      context, dtype, NumberElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel(
            [=](const KernelContext& run) {
              const void* x = run.inputs[0];
              return LaunchStatus(LaunchArgExtreme(QueueOf(run), plan.For({x}), smallest, last,
                                                   dtype, x, Out<int64_t>(run, 0), run.workspace),
                                  smallest ? "ArgMin" : "ArgMax");
            },
            plan.workspace_bytes(kArgTotalBytes));
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareHardmax(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  const int axis = shape.rank() == 0 ? 0 : ConcreteAxis(context, "axis", -1, shape.rank());
  return PrepareByElement(
      context, context.InputDType(0), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        const LinePlan plan = LinePlan::Along(shape, axis, 16 / sizeof(T), /*registers=*/false);
        return MakeKernel([plan](const KernelContext& run) {
          const T* x = In<T>(run, 0);
          T* y = Out<T>(run, 0);
          return LaunchStatus(LaunchHardmax(QueueOf(run), plan.For({x, y}), x, y), "Hardmax");
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTopK(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  const int axis = ConcreteAxis(context, "axis", -1, shape.rank());
  TopKPlan plan;
  plan.k = context.OutputShape(context.HasOutput(0) ? 0 : 1).dim(axis);
  plan.size = shape.dim(axis);
  plan.stride = shape.ProductOf(axis + 1, shape.rank());
  plan.lines = plan.k == 0 ? 0 : shape.ProductOf(0, axis) * plan.stride;
  plan.smallest = context.attributes().Int("largest", 1) != 0 ? 0 : 1;
  if (plan.k > plan.size) {
    return context.InvalidArgument(
        absl::StrCat("K is ", plan.k, ", more than the ", plan.size, " elements of axis ", axis));
  }
  if (plan.size > kTopKSorted && plan.k > kTopKSelected) {
    return context.Unimplemented(absl::StrCat("no kernel on CUDA devices for K ", plan.k, " of ",
                                              plan.size, " elements: of more than ", kTopKSorted,
                                              " elements K is at most ", kTopKSelected));
  }
  const bool has_values = context.HasOutput(0);
  const bool has_positions = context.HasOutput(1);
  const DType dtype = context.InputDType(0);
  return PrepareByElement(
      context, dtype, NumberElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          return LaunchStatus(LaunchTopK(QueueOf(run), plan, dtype, run.inputs[0],
                                         has_values ? run.outputs[0] : nullptr,
                                         has_positions ? Out<int64_t>(run, 1) : nullptr),
                              "TopK");
        });
      });
}

WEFT_REGISTER_KERNEL("", "ArgMax", DeviceKind::kCuda, PrepareArg<false>);
WEFT_REGISTER_KERNEL("", "ArgMin", DeviceKind::kCuda, PrepareArg<true>);
WEFT_REGISTER_KERNEL("", "Hardmax", DeviceKind::kCuda, PrepareHardmax);
WEFT_REGISTER_KERNEL("", "TopK", DeviceKind::kCuda, PrepareTopK);

}  // namespace
}  // namespace weft::cuda
