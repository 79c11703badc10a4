// LayerNormalizationGrad and RMSNormalizationGrad: one walk over the rows for dX and for sums of
// the parameters; of rows that are too long, and of double, rows for dX, then columns.
#include <algorithm>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/fold_plan.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/line_plan.h"
#include "ops/kernels/cuda/normalization/normalize_calls.h"
#include "ops/kernels/cuda/normalization/normalize_dnn.h"
#include "ops/kernels/cuda/normalization/normalize_walk_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

struct GradRows {
  int64_t rows = 0;
  int64_t columns = 0;  // of the normalized axes
};

absl::StatusOr<GradRows> GradRowsOf(const PrepareContext& context) {
  const Shape& x = context.InputShape(1);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", -1), x.rank()));
  const GradRows rows{x.ProductOf(0, axis), x.ProductOf(axis, x.rank())};
  if (!(context.InputShape(0) == x) || context.InputShape(2).num_elements() != rows.columns) {
    return context.InvalidArgument(absl::StrCat(
        "dY is ", context.InputShape(0).ToString(), " and Scale ", context.InputShape(2).ToString(),
        "; X ", x.ToString(), " wants a dY like it, and ", rows.columns, " elements of Scale"));
  }
  return rows;
}

// Two ways. A walk has its sums in the workspace, in front of partial sums of their columns. Rows
// and columns have, of RMS, the inverse deviations of the rows there.
template <typename T, bool rms>
class NormalizeGradKernel final : public Kernel {
 public:
  NormalizeGradKernel(const PrepareContext& context, const GradRows& rows)
      : dx_(context.HasOutput(0)),
        dscale_(context.HasOutput(1)),
        dbias_(!rms && context.HasOutput(2)),
        epsilon_(context.attributes().Float("epsilon", 1e-5f)),
        by_row_(
            LinePlan::Make(rows.rows, rows.columns, 1, 16 / sizeof(T), !std::is_same_v<T, double>)),
        by_column_(FoldPlan::OfColumns(rows.rows, rows.columns, kColumnsWidth<T>)),
        inverse_bytes_(rms ? RoundUp(static_cast<size_t>(rows.rows) * sizeof(C)) : 0) {
    if constexpr (!std::is_same_v<T, double>) {
      // Without dX, columns alone read each element once; but those of RMS need the rows.
      if (HasParameters() && (dx_ || rms)) {
        walk_ = NormalizeWalk::Of(rows.rows, rows.columns, kWidest<T>);
        of_sums_ = FoldPlan::OfColumns(walk_.walkers, rows.columns, kWalkSumsWidth);
      }
    }
  }

  size_t workspace_bytes() const override { return std::max(WalkBytes(), RowsBytes()); }

  absl::Status Run(const KernelContext& run) override {
    if constexpr (!std::is_same_v<T, double>) {
      const bool fits = walk_.width == 1 || AreAligned({run.inputs[0], run.inputs[1], run.inputs[2],
                                                        dx_ ? run.outputs[0] : nullptr});
      if (walk_.walkers > 0 && fits) return RunWalk(run);
    }
    if (dx_ || (rms && HasParameters())) WEFT_RETURN_IF_ERROR(RunRows(run));
    return HasParameters() ? RunColumns(run) : absl::OkStatus();
  }

 private:
  using C = Compute<T>;

  static size_t RoundUp(size_t bytes) { return (bytes + 63) / 64 * 64; }
  bool HasParameters() const { return dscale_ || dbias_; }
  size_t SumsBytes() const { return RoundUp(walk_.sums() * sizeof(C)); }  // of each array
  size_t WalkBytes() const {
    if (walk_.walkers == 0) return 0;
    return (rms ? 1 : 2) * SumsBytes() + of_sums_.workspace_bytes(kColumnsTotalBytes);
  }
  size_t RowsBytes() const {
    return inverse_bytes_ + (HasParameters() ? by_column_.workspace_bytes(kColumnsTotalBytes) : 0);
  }

  absl::Status RunWalk(const KernelContext& run) const {
    char* const space = static_cast<char*>(run.workspace);
    C* const scales = reinterpret_cast<C*>(space);
    C* const biases = rms ? nullptr : reinterpret_cast<C*>(space + SumsBytes());
    WEFT_RETURN_IF_ERROR(
        LaunchStatus(LaunchNormalizeWalk(QueueOf(run), walk_, rms, Operands(run), scales, biases),
                     "a normalization's gradient"));
    const FoldLaunch& fold = of_sums_.For({scales, biases});
    return LaunchStatus(
        LaunchWalkSums(QueueOf(run), fold, scales, biases, dscale_ ? Out<T>(run, 1) : nullptr,
                       dbias_ ? Out<T>(run, 2) : nullptr, space + (rms ? 1 : 2) * SumsBytes()),
        "the gradient of a normalization's parameters");
  }

  NormalizeGradOperands<T> Operands(const KernelContext& run) const {
    NormalizeGradOperands<T> operands;
    operands.dy = In<T>(run, 0);
    operands.x = In<T>(run, 1);
    operands.scale = In<T>(run, 2);
    operands.dx = dx_ ? Out<T>(run, 0) : nullptr;
    operands.epsilon = epsilon_;
    if constexpr (!rms) {
      operands.mean = In<C>(run, 3);
      operands.inverse = In<C>(run, 4);
    }
    return operands;
  }

  absl::Status RunRows(const KernelContext& run) const {
    NormalizeGradOperands<T> operands = Operands(run);
    if constexpr (rms) operands.new_inverse = static_cast<C*>(run.workspace);
    const LineLaunch& line = by_row_.For({operands.dy, operands.x, operands.scale, operands.dx});
    return LaunchStatus(LaunchNormalizeGrad(QueueOf(run), line, rms, operands),
                        "a normalization's gradient");
  }

  absl::Status RunColumns(const KernelContext& run) const {
    NormalizeColumnsOperands<T> operands;
    operands.dy = In<T>(run, 0);
    operands.x = In<T>(run, 1);
    operands.mean = rms ? nullptr : In<C>(run, 3);
    operands.inverse = rms ? static_cast<const C*>(run.workspace) : In<C>(run, 4);
    operands.dscale = dscale_ ? Out<T>(run, 1) : nullptr;
    operands.dbias = dbias_ ? Out<T>(run, 2) : nullptr;
    const FoldLaunch& fold = by_column_.For({operands.dy, operands.x});
    char* const partials = static_cast<char*>(run.workspace) + inverse_bytes_;
    return LaunchStatus(LaunchNormalizeColumns(QueueOf(run), fold, operands, partials),
                        "the gradient of a normalization's parameters");
  }

  const bool dx_;
  const bool dscale_;
  const bool dbias_;
  const double epsilon_;
  const LinePlan by_row_;
  const FoldPlan by_column_;
  const size_t inverse_bytes_;
  NormalizeWalk walk_;  // without walkers: not taken
  FoldPlan of_sums_;    // of the walkers' sums
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLayerNormalizationGrad(
    const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const GradRows rows, GradRowsOf(context));
  if (context.InputShape(3).num_elements() != rows.rows ||
      context.InputShape(4).num_elements() != rows.rows) {
    return context.InvalidArgument("Mean or InvStdDev do not have the shapes that X asks for");
  }
  return PrepareByElement(
      context, context.InputDType(0), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        for (int i = 3; i < 5; ++i) {
          const DType dtype = context.InputDType(i);
          if (dtype == DTypeOf<Compute<T>>::value) continue;
          return context.Unimplemented(absl::StrCat("Mean and InvStdDev of type ",
                                                    std::string(DTypeName(dtype)),
                                                    ": only stash_type 1 is computed"));
        }
        WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> through_cudnn,
                              MakeDnnLayerNormalizationGrad(context, rows.rows, rows.columns));
        if (through_cudnn != nullptr) return through_cudnn;
        return std::make_unique<NormalizeGradKernel<T, false>>(context, rows);
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRmsNormalizationGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const GradRows rows, GradRowsOf(context));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> through_cudnn,
                        MakeDnnRmsNormalizationGrad(context, rows.rows, rows.columns));
  if (through_cudnn != nullptr) return through_cudnn;
  return PrepareByElement(context, context.InputDType(1), FloatElements(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return std::make_unique<NormalizeGradKernel<decltype(zero), true>>(
                                context, rows);
                          });
}

WEFT_REGISTER_KERNEL(kWeftDomain, "LayerNormalizationGrad", DeviceKind::kCuda,
                     PrepareLayerNormalizationGrad);
WEFT_REGISTER_KERNEL(kWeftDomain, "RMSNormalizationGrad", DeviceKind::kCuda,
                     PrepareRmsNormalizationGrad);

}  // namespace
}  // namespace weft::cuda
