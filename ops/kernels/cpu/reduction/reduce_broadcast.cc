// BroadcastReduced, the counterpart of the reductions, and ElementCount.
#include "ops/axes.h"
#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/elementwise/elementwise_simd.h"
#include "ops/kernels/cpu/reduction/reduce_simd.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// out[i] = small[i * step] / divisor, step 0 or 1.
template <typename T>
void SpreadRun(const T* small, int64_t step, double divisor, T* out, int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    const float factor = static_cast<float>(1 / divisor);
    if (step == 0) return FillFloat(*small * factor, out, count);
    return BinaryFloat(BinaryOp::kMul, BinaryOperands::kScalarB, small, &factor, out, count);
  } else {
    using C = ComputeType<T>;
    for (int64_t i = 0; i < count; ++i) {
      out[i] = Store<T>(static_cast<C>(Load(small[i * step]) / static_cast<C>(divisor)));
    }
  }
}

template <typename T>
std::unique_ptr<Kernel> MakeBroadcastReduced(BroadcastPlan plan, double divisor, int threads) {
  return MakeKernel([=, plan = std::move(plan)](const KernelContext& context) {
    const T* small = Input<T>(context, 0);
    T* out = Output<T>(context, 0);
    ForEachRun(plan, threads, kArithmeticNanoseconds,
               [&](const BroadcastPlan::Strides& offsets, int64_t to, int64_t count) {
                 SpreadRun(small + offsets[0], plan.inner_strides[0], divisor, out + to, count);
               });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBroadcastReduced(const PrepareContext& context) {
  const Shape& big = context.OutputShape(0);
  const Tensor* axes = context.HasInput(2) ? context.InputValue(2) : nullptr;
  if (context.HasInput(2) && axes == nullptr) {
    return context.InvalidArgument("the axes must be known when the program is compiled");
  }
  const bool noop = context.attributes().Int("noop_with_empty_axes", 0) != 0;
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxes(big.rank(), axes, noop));
  const Shape small = ReducedShape(big, reduced, /*keepdims=*/true);
  if (small.num_elements() != context.InputShape(0).num_elements()) {
    return context.InvalidArgument(absl::StrCat("input 0 should have the elements of ",
                                                small.ToString(), " to be spread to ",
                                                big.ToString()));
  }
  double divisor = 1;
  if (context.attributes().Int("mean", 0) != 0) {
    divisor = static_cast<double>(ReducedCount(context.OutputSlice(0).global_shape, reduced));
  }
  BroadcastPlan plan = BroadcastPlan::Make(big, {small});
  return PrepareByDType(context, context.InputDType(0), NumericTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeBroadcastReduced<decltype(zero)>(std::move(plan), divisor,
                                                                      context.threads());
                        });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareElementCount(const PrepareContext& context) {
  const int64_t count = context.InputShape(0).num_elements();
  return PrepareByDType(context, context.OutputDType(0), NumericTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([count](const KernelContext& run) {
                            *Output<T>(run, 0) = Store<T>(static_cast<ComputeType<T>>(count));
                            return absl::OkStatus();
                          });
                        });
}

WEFT_REGISTER_KERNEL(kWeftDomain, "BroadcastReduced", DeviceKind::kCpu, PrepareBroadcastReduced);
WEFT_REGISTER_KERNEL(kWeftDomain, "ElementCount", DeviceKind::kCpu, PrepareElementCount);

}  // namespace
}  // namespace weft::cpu
