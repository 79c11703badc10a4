// BroadcastReduced, the counterpart of the reductions, and ElementCount.
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/axes.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/fold_plan.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/reduction/reduce_axes.h"
#include "ops/kernels/cuda/reduction/spread_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Packets of `width` where the last axis has whole ones.
SpreadPlan SpreadPlanOf(const Shape& big, const std::vector<bool>& reduced, double divisor,
                        int width) {
  const Shape small = ReducedShape(big, reduced, /*keepdims=*/true);
  std::vector<StridedAxis> axes;
  int previous = -1;
  for (int d = 0; d < big.rank(); ++d) {
    if (big.dim(d) == 1) continue;
    const int fate = reduced[d] ? 1 : 0;
    const StridedAxis axis{big.dim(d), reduced[d] ? 0 : small.ProductOf(d + 1, small.rank())};
    if (fate == previous) {
      axes.back() = {axes.back().size * axis.size, axis.stride};
    } else {
      axes.push_back(axis);
    }
    previous = fate;
  }
  if (axes.empty()) axes.push_back({1, 0});
  SpreadPlan plan;
  plan.divisor = divisor;
  plan.repeats = previous == 1 ? 1 : 0;
  if (width > 1 && axes.back().size % width == 0 && previous >= 0) {
    plan.width = width;
    axes.back().size /= width;
    axes.back().stride *= width;
  }
  plan.packets = big.num_elements() / plan.width;
  // An axis that is spread and one that is not alternate: at most 16 axes make 16.
  if (axes.size() <= kMaxIndexAxes) plan.index = IndexOf(axes);
  return plan;
}

int AlternatingAxes(const Shape& big, const std::vector<bool>& reduced) {
  int count = 0;
  int previous = -1;
  for (int d = 0; d < big.rank(); ++d) {
    if (big.dim(d) == 1) continue;
    const int fate = reduced[d] ? 1 : 0;
    if (fate != previous) ++count;
    previous = fate;
  }
  return count;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBroadcastReduced(const PrepareContext& context) {
  const Shape& big = context.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxesOf(context, big.rank(), 2));
  const Shape small = ReducedShape(big, reduced, /*keepdims=*/true);
  if (small.num_elements() != context.InputShape(0).num_elements()) {
    return context.InvalidArgument(absl::StrCat("input 0 should have the elements of ",
                                                small.ToString(), " to be spread to ",
                                                big.ToString()));
  }
  if (AlternatingAxes(big, reduced) > kMaxIndexAxes) {
    return context.Unimplemented(absl::StrCat("no kernel on CUDA devices for more than ",
                                              kMaxIndexAxes, " axes that alternate"));
  }
  double divisor = 1;
  if (context.attributes().Int("mean", 0) != 0) {
    divisor = static_cast<double>(ReducedCount(context.OutputSlice(0).global_shape, reduced));
  }
  return PrepareByElement(
      context, context.InputDType(0), NumberElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        const int width = std::is_integral_v<T> ? 1 : 16 / static_cast<int>(sizeof(T));
        const SpreadPlan narrow = SpreadPlanOf(big, reduced, divisor, 1);
        const SpreadPlan wide = SpreadPlanOf(big, reduced, divisor, width);
        return MakeKernel([narrow, wide](const KernelContext& run) {
          const T* from = In<T>(run, 0);
          T* to = Out<T>(run, 0);
          const SpreadPlan& plan = AreAligned({from, to}) ? wide : narrow;
          return LaunchStatus(LaunchSpread(QueueOf(run), plan, from, to), "BroadcastReduced");
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareElementCount(const PrepareContext& context) {
  const int64_t count = context.InputShape(0).num_elements();
  return PrepareByElement(
      context, context.OutputDType(0), NumberElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([count](const KernelContext& run) {
          return LaunchStatus(LaunchConstant(QueueOf(run), count, Out<T>(run, 0)), "ElementCount");
        });
      });
}

WEFT_REGISTER_KERNEL(kWeftDomain, "BroadcastReduced", DeviceKind::kCuda, PrepareBroadcastReduced);
WEFT_REGISTER_KERNEL(kWeftDomain, "ElementCount", DeviceKind::kCuda, PrepareElementCount);

}  // namespace
}  // namespace weft::cuda
