// LayerNormalization, RMSNormalization, InstanceNormalization and GroupNormalization.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/fold_plan.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/line_plan.h"
#include "ops/kernels/cuda/normalization/normalize_calls.h"
#include "ops/kernels/cuda/normalization/normalize_dnn.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

template <typename T>
LinePlan RowPlanOf(int64_t rows, int64_t columns) {
  return LinePlan::Make(rows, columns, 1, 16 / sizeof(T), !std::is_same_v<T, double>);
}

// The rows' operands with the addresses of a run.
template <typename T>
NormalizeOperands<T> WithAddresses(NormalizeOperands<T> operands, const KernelContext& run,
                                   bool has_bias) {
  operands.x = In<T>(run, 0);
  operands.scale = In<T>(run, 1);
  operands.bias = has_bias ? In<T>(run, 2) : nullptr;
  operands.y = Out<T>(run, 0);
  return operands;
}

template <typename T>
int LaunchRowsOf(const KernelContext& run, const LinePlan& plan, bool rms,
                 const NormalizeOperands<T>& operands) {
  const LineLaunch& line = plan.For({operands.x, operands.scale, operands.bias, operands.y});
  return LaunchNormalize(QueueOf(run), line, rms, operands);
}

absl::Status CheckStatisticType(const PrepareContext& context, int output) {
  if (!context.HasOutput(output)) return absl::OkStatus();
  switch (context.OutputDType(output)) {
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBfloat16:
      return absl::OkStatus();
    default:
      return context.Unimplemented(absl::StrCat(
          "Mean and InvStdDev of type ", std::string(DTypeName(context.OutputDType(output)))));
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLayerNormalization(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", -1), x.rank()));
  for (int i = 1; i < 3; ++i) WEFT_RETURN_IF_ERROR(CheckStatisticType(context, i));
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<Kernel> through_cudnn,
      MakeDnnLayerNormalization(context, x.ProductOf(0, axis), x.ProductOf(axis, x.rank())));
  if (through_cudnn != nullptr) return through_cudnn;
  const bool has_bias = context.HasInput(2);
  const bool has_mean = context.HasOutput(1);
  const bool has_inverse = context.HasOutput(2);
  const DType mean_type = context.OutputDType(1);
  const DType inverse_type = context.OutputDType(2);
  return PrepareByElement(
      context, context.InputDType(0), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        const LinePlan plan = RowPlanOf<T>(x.ProductOf(0, axis), x.ProductOf(axis, x.rank()));
        NormalizeOperands<T> prototype;
        prototype.epsilon = context.attributes().Float("epsilon", 1e-5f);
        return MakeKernel([=](const KernelContext& run) {
          NormalizeOperands<T> operands = WithAddresses(prototype, run, has_bias);
          if (has_mean) operands.mean = {run.outputs[1], mean_type};
          if (has_inverse) operands.inverse = {run.outputs[2], inverse_type};
          return LaunchStatus(LaunchRowsOf(run, plan, /*rms=*/false, operands),
                              "LayerNormalization");
        });
      });
}

// ---- Groups of channels.

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGroups(const PrepareContext& context,
                                                      int64_t groups) {
  const Shape& x = context.InputShape(0);
  const int64_t plane = x.ProductOf(2, x.rank());
  const int64_t channels = x.dim(1) / std::max<int64_t>(groups, 1);
  constexpr int64_t kLimit = int64_t{1} << 31;
  if (channels * plane >= kLimit) {
    return context.Unimplemented(
        absl::StrCat("no kernel on CUDA devices for groups of ", channels * plane, " elements"));
  }
  const int64_t rows = x.num_elements() == 0 ? 0 : x.dim(0) * groups;
  const bool per_group = context.InputShape(1).dim(0) != x.dim(1);
  return PrepareByElement(
      context, context.InputDType(0), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        const LinePlan plan = RowPlanOf<T>(rows, channels * plane);
        NormalizeOperands<T> prototype;
        prototype.epsilon = context.attributes().Float("epsilon", 1e-5f);
        prototype.plane = static_cast<int32_t>(std::max<int64_t>(plane, 1));
        prototype.by_plane = FastDivisor<int32_t>(prototype.plane);
        prototype.per_group = per_group ? 1 : 0;
        prototype.groups = std::max<int64_t>(groups, 1);
        prototype.channels = channels;
        return MakeKernel([=](const KernelContext& run) {
          const NormalizeOperands<T> operands = WithAddresses(prototype, run, /*has_bias=*/true);
          // Scale and bias are read one by one.
          const LineLaunch& line = plan.For({operands.x, operands.y});
          return LaunchStatus(LaunchNormalize(QueueOf(run), line, /*rms=*/false, operands),
                              "a normalization of groups");
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareInstanceNormalization(
    const PrepareContext& context) {
  return PrepareGroups(context, context.InputShape(0).dim(1));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGroupNormalization(const PrepareContext& context) {
  if (!(context.InputShape(1) == context.InputShape(2))) {
    return context.InvalidArgument("scale and bias must have the same shape");
  }
  return PrepareGroups(context, context.attributes().Int("num_groups", 1));
}

// ---- RMSNormalization.

// Where the element of scale for each element of a row lies. Neighbouring axes of x of which scale
// has all, or none, are one.
absl::StatusOr<AxisIndex> ScaleIndex(const PrepareContext& context, const Shape& x, int axis,
                                     const Shape& scale) {
  std::vector<StridedAxis> axes;
  int previous = -1;
  for (int d = axis; d < x.rank(); ++d) {
    if (x.dim(d) == 1) continue;
    const int own = d - (x.rank() - scale.rank());
    const bool spread = own < 0 || scale.dim(own) == 1;
    const StridedAxis next{x.dim(d), spread ? 0 : scale.ProductOf(own + 1, scale.rank())};
    if (previous == (spread ? 1 : 0)) {
      axes.back() = {axes.back().size * next.size, next.stride};
    } else {
      axes.push_back(next);
    }
    previous = spread ? 1 : 0;
  }
  if (axes.empty()) axes.push_back({1, 0});
  if (axes.size() <= kMaxIndexAxes) return IndexOf(axes);
  return context.Unimplemented(absl::StrCat("no kernel on CUDA devices for a scale with more than ",
                                            kMaxIndexAxes, " axes that alternate"));
}

template <typename T>
absl::StatusOr<std::unique_ptr<Kernel>> MakeMixedRms(const PrepareContext& context, int axis) {
  const Shape& x = context.InputShape(0);
  MixedRmsOperands<T> prototype;
  WEFT_ASSIGN_OR_RETURN(prototype.of_scale, ScaleIndex(context, x, axis, context.InputShape(1)));
  prototype.epsilon = context.attributes().Float("epsilon", 1e-5f);
  prototype.scale.dtype = context.InputDType(1);
  prototype.y.dtype = context.OutputDType(0);
  const LinePlan plan = LinePlan::Make(x.ProductOf(0, axis), x.ProductOf(axis, x.rank()), 1, 1,
                                       /*registers=*/false);
  return MakeKernel([=](const KernelContext& run) {
    MixedRmsOperands<T> operands = prototype;
    operands.x = In<T>(run, 0);
    operands.scale.data = run.inputs[1];
    operands.y.data = run.outputs[0];
    return LaunchStatus(LaunchMixedRms(QueueOf(run), plan.narrow, operands), "RMSNormalization");
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRmsNormalization(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", -1), x.rank()));
  const int64_t columns = x.ProductOf(axis, x.rank());
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> through_cudnn,
                        MakeDnnRmsNormalization(context, x.ProductOf(0, axis), columns));
  if (through_cudnn != nullptr) return through_cudnn;
  const bool plain = context.InputDType(1) == context.InputDType(0) &&
                     context.InputShape(1).num_elements() == columns;
  return PrepareByElement(
      context, context.InputDType(0), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        if (!plain) return MakeMixedRms<T>(context, axis);
        const LinePlan plan = RowPlanOf<T>(x.ProductOf(0, axis), columns);
        NormalizeOperands<T> prototype;
        prototype.epsilon = context.attributes().Float("epsilon", 1e-5f);
        return MakeKernel([=](const KernelContext& run) {
          const NormalizeOperands<T> operands = WithAddresses(prototype, run, /*has_bias=*/false);
          return LaunchStatus(LaunchRowsOf(run, plan, /*rms=*/true, operands), "RMSNormalization");
        });
      });
}

WEFT_REGISTER_KERNEL("", "LayerNormalization", DeviceKind::kCuda, PrepareLayerNormalization);
WEFT_REGISTER_KERNEL("", "InstanceNormalization", DeviceKind::kCuda, PrepareInstanceNormalization);
WEFT_REGISTER_KERNEL("", "GroupNormalization", DeviceKind::kCuda, PrepareGroupNormalization);
WEFT_REGISTER_KERNEL("", "RMSNormalization", DeviceKind::kCuda, PrepareRmsNormalization);

}  // namespace
}  // namespace weft::cuda
