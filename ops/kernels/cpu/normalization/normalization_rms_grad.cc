// The gradient of RMSNormalization, row by row; the formulas are in
// ops/defs/normalization/normalization_rms.cc.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "ops/kernels/cpu/normalization/normalization_math.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

struct RmsPlan {
  int64_t rows = 0;
  int64_t columns = 0;  // of the normalized axes
  float epsilon = 0;
  int threads = 1;
};

// The sums over rows of dScale are taken in blocks that depend on the number of rows alone, so that
// the number of threads changes no bits.
template <typename T>
class RmsNormalizationGradient final : public Kernel {
 public:
  RmsNormalizationGradient(const PrepareContext& context, const RmsPlan& plan)
      : plan_(plan), dx_(context.HasOutput(0)), dscale_(context.HasOutput(1)) {
    constexpr int64_t kMaxBlocks = 16;
    constexpr int64_t kMinRows = 16;
    block_rows_ = std::max(kMinRows, (plan.rows + kMaxBlocks - 1) / kMaxBlocks);
    blocks_ = (plan.rows + block_rows_ - 1) / block_rows_;
    WorkspaceLayout layout;
    sums_ = layout.Add(dscale_ ? blocks_ * plan.columns * sizeof(S) : 0);
    workspace_bytes_ = layout.total();
  }

  size_t workspace_bytes() const override { return workspace_bytes_; }

  absl::Status Run(const KernelContext& run) override {
    const double nanoseconds = static_cast<double>(block_rows_ * plan_.columns);
    ParallelFor(plan_.threads, blocks_, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) RunBlock(run, block);
    });
    if (!dscale_) return absl::OkStatus();
    T* const dscale = Output<T>(run, 1);
    for (int64_t i = 0; i < plan_.columns; ++i) {
      S sum = 0;
      for (int64_t block = 0; block < blocks_; ++block) sum += BlockSums(run, block)[i];
      dscale[i] = Store<T>(sum);
    }
    return absl::OkStatus();
  }

 private:
  using S = ComputeType<T>;

  S* BlockSums(const KernelContext& run, int64_t block) const {
    return static_cast<S*>(At(run.workspace, sums_)) + block * plan_.columns;
  }

  void RunBlock(const KernelContext& run, int64_t block) const {
    const int64_t n = plan_.columns;
    S* const dscale = dscale_ ? BlockSums(run, block) : nullptr;
    if (dscale_) std::fill_n(dscale, n, S(0));
    const int64_t end = std::min(plan_.rows, (block + 1) * block_rows_);
    for (int64_t row = block * block_rows_; row < end; ++row) {
      const T* const dy = Input<T>(run, 0) + row * n;
      const T* const x = Input<T>(run, 1) + row * n;
      const S mean = SumOfSquaredDeviations(x, n, S(0)) / static_cast<S>(n);
      const Statistics<S> statistics{S(0), S(1) / std::sqrt(mean + static_cast<S>(plan_.epsilon))};
      if (dx_) {
        const T* const scale = Input<T>(run, 2);
        GradientSums<S> means = SumGradientRow(dy, x, n, statistics, scale);
        means.g = 0;
        means.g_xhat /= static_cast<S>(n);
        NormalizeGradientRow(dy, x, n, statistics, scale, means, Output<T>(run, 0) + row * n);
      }
      if (dscale_) AddParameterGradients(dy, x, n, statistics, dscale, static_cast<S*>(nullptr));
    }
  }

  const RmsPlan plan_;
  const bool dx_;
  const bool dscale_;
  int64_t block_rows_;
  int64_t blocks_;
  size_t sums_;
  size_t workspace_bytes_;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRmsNormalizationGradient(
    const PrepareContext& context) {
  const Shape& x = context.InputShape(1);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", -1), x.rank()));
  const RmsPlan plan{x.ProductOf(0, axis), x.ProductOf(axis, x.rank()),
                     context.attributes().Float("epsilon", 1e-5f), context.threads()};
  if (!(context.InputShape(0) == x) || context.InputShape(2).num_elements() != plan.columns) {
    return context.InvalidArgument(absl::StrCat(
        "dY is ", context.InputShape(0).ToString(), " and Scale ", context.InputShape(2).ToString(),
        "; X ", x.ToString(), " wants a dY like it, ", "and ", plan.columns, " elements of Scale"));
  }
  return PrepareByDType(context, context.InputDType(1), FloatTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return std::make_unique<RmsNormalizationGradient<decltype(zero)>>(context,
                                                                                            plan);
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL("ai.weft", "RMSNormalizationGrad", DeviceKind::kCpu,
                     PrepareRmsNormalizationGradient);

}  // namespace weft::cpu
