// LayerNormalization and its gradient, row by row.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "ops/kernels/cpu/normalization/normalization_math.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

struct Rows {
  int64_t rows = 0;
  int64_t columns = 0;  // of the normalized axes
  int threads = 1;
};

Rows RowsOf(const PrepareContext& context, const Shape& x) {
  const int axis = *NormalizeAxis(context.attributes().Int("axis", -1), x.rank());
  return Rows{x.ProductOf(0, axis), x.ProductOf(axis, x.rank()), context.threads()};
}

// The dtype of Mean and InvStdDev must be the one that the kernel computes in.
template <typename T>
absl::Status CheckStatistics(const PrepareContext& context, DType dtype) {
  if (dtype == DTypeOf<ComputeType<T>>::value || dtype == DType::kInvalid) return absl::OkStatus();
  return context.Unimplemented(absl::StrCat("Mean and InvStdDev of type ",
                                            std::string(DTypeName(dtype)),
                                            ": only stash_type 1 is computed"));
}

// Writes element i of an output of statistics; null for one that is not wanted.
template <typename S>
using StoreStatistic = void (*)(void* output, int64_t i, S value);

template <typename S, typename U>
void StoreAs(void* output, int64_t i, S value) {
  static_cast<U*>(output)[i] = Store<U>(static_cast<ComputeType<U>>(value));
}

// stash_type names any floating type of 16 bits or more.
template <typename S>
absl::StatusOr<StoreStatistic<S>> StatisticOf(const PrepareContext& context, int output) {
  if (!context.HasOutput(output)) return StoreStatistic<S>(nullptr);
  switch (context.OutputDType(output)) {
    case DType::kFloat32:
      return StoreStatistic<S>(StoreAs<S, float>);
    case DType::kFloat64:
      return StoreStatistic<S>(StoreAs<S, double>);
    case DType::kFloat16:
      return StoreStatistic<S>(StoreAs<S, Float16>);
    case DType::kBfloat16:
      return StoreStatistic<S>(StoreAs<S, Bfloat16>);
    default:
      return context.Unimplemented(absl::StrCat(
          "Mean and InvStdDev of type ", std::string(DTypeName(context.OutputDType(output)))));
  }
}

template <typename T>
std::unique_ptr<Kernel> MakeLayerNormalization(const Rows& rows, float epsilon, bool has_bias,
                                               StoreStatistic<ComputeType<T>> store_mean,
                                               StoreStatistic<ComputeType<T>> store_inverse) {
  using S = ComputeType<T>;
  return MakeKernel([=](const KernelContext& run) {
    const T* x = Input<T>(run, 0);
    const T* scale = Input<T>(run, 1);
    const T* bias = has_bias ? Input<T>(run, 2) : nullptr;
    T* y = Output<T>(run, 0);
    const int64_t n = rows.columns;
    ParallelFor(
        rows.threads, rows.rows, 0.5 * static_cast<double>(n), 1, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            const T* from = x + row * n;
            Statistics<S> statistics;
            statistics.mean = SumOf(from, n) / static_cast<S>(n);
            const S variance = SumOfSquaredDeviations(from, n, statistics.mean) / static_cast<S>(n);
            statistics.inverse = S(1) / std::sqrt(variance + static_cast<S>(epsilon));
            NormalizeRow(from, n, statistics, scale, bias, y + row * n);
            if (store_mean != nullptr) store_mean(run.outputs[1], row, statistics.mean);
            if (store_inverse != nullptr) store_inverse(run.outputs[2], row, statistics.inverse);
          }
        });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLayerNormalization(const PrepareContext& context) {
  const Rows rows = RowsOf(context, context.InputShape(0));
  const float epsilon = context.attributes().Float("epsilon", 1e-5f);
  return PrepareByDType(
      context, context.InputDType(0), FloatTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        using S = ComputeType<T>;
        WEFT_ASSIGN_OR_RETURN(const StoreStatistic<S> mean, StatisticOf<S>(context, 1));
        WEFT_ASSIGN_OR_RETURN(const StoreStatistic<S> inverse, StatisticOf<S>(context, 2));
        return MakeLayerNormalization<T>(rows, epsilon, context.HasInput(2), mean, inverse);
      });
}

// ---- Gradient. The sums over rows of dScale and dB are taken in blocks that depend on the number
// of rows alone, so that the number of threads changes no bits.

template <typename T>
class LayerNormalizationGradient final : public Kernel {
 public:
  LayerNormalizationGradient(const PrepareContext& context, const Rows& rows)
      : rows_(rows),
        dx_(context.HasOutput(0)),
        dscale_(context.HasOutput(1)),
        dbias_(context.HasOutput(2)) {
    constexpr int64_t kMaxBlocks = 16;
    constexpr int64_t kMinRows = 16;
    block_rows_ = std::max(kMinRows, (rows.rows + kMaxBlocks - 1) / kMaxBlocks);
    blocks_ = (rows.rows + block_rows_ - 1) / block_rows_;
    WorkspaceLayout layout;
    scale_sums_ = layout.Add(dscale_ ? blocks_ * rows.columns * sizeof(S) : 0);
    bias_sums_ = layout.Add(dbias_ ? blocks_ * rows.columns * sizeof(S) : 0);
    workspace_bytes_ = layout.total();
  }

  absl::Status Run(const KernelContext& context) override {
    const double nanoseconds = static_cast<double>(block_rows_ * rows_.columns);
    ParallelFor(rows_.threads, blocks_, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) RunBlock(context, block);
    });
    if (dscale_) AddBlocks(context, scale_sums_, Output<T>(context, 1));
    if (dbias_) AddBlocks(context, bias_sums_, Output<T>(context, 2));
    return absl::OkStatus();
  }

  size_t workspace_bytes() const override { return workspace_bytes_; }

 private:
  using S = ComputeType<T>;

  S* BlockSums(const KernelContext& context, size_t sums, int64_t block) const {
    return static_cast<S*>(At(context.workspace, sums)) + block * rows_.columns;
  }

  void RunBlock(const KernelContext& context, int64_t block) const {
    const int64_t n = rows_.columns;
    S* dscale = dscale_ ? BlockSums(context, scale_sums_, block) : nullptr;
    S* dbias = dbias_ ? BlockSums(context, bias_sums_, block) : nullptr;
    if (dscale_) std::fill_n(dscale, n, S(0));
    if (dbias_) std::fill_n(dbias, n, S(0));
    const int64_t end = std::min(rows_.rows, (block + 1) * block_rows_);
    for (int64_t row = block * block_rows_; row < end; ++row) {
      const T* dy = Input<T>(context, 0) + row * n;
      const T* x = Input<T>(context, 1) + row * n;
      const Statistics<S> statistics{Input<S>(context, 3)[row], Input<S>(context, 4)[row]};
      if (dx_) {
        const T* scale = Input<T>(context, 2);
        GradientSums<S> means = SumGradientRow(dy, x, n, statistics, scale);
        means.g /= static_cast<S>(n);
        means.g_xhat /= static_cast<S>(n);
        NormalizeGradientRow(dy, x, n, statistics, scale, means, Output<T>(context, 0) + row * n);
      }
      if (dscale_ || dbias_) AddParameterGradients(dy, x, n, statistics, dscale, dbias);
    }
  }

  void AddBlocks(const KernelContext& context, size_t sums, T* output) const {
    for (int64_t i = 0; i < rows_.columns; ++i) {
      S sum = 0;
      for (int64_t block = 0; block < blocks_; ++block) sum += BlockSums(context, sums, block)[i];
      output[i] = Store<T>(sum);
    }
  }

  const Rows rows_;
  const bool dx_;
  const bool dscale_;
  const bool dbias_;
  int64_t block_rows_;
  int64_t blocks_;
  size_t scale_sums_;
  size_t bias_sums_;
  size_t workspace_bytes_;
};

absl::Status CheckGradientShapes(const PrepareContext& context, const Rows& rows) {
  const bool fits = context.InputShape(0) == context.InputShape(1) &&
                    context.InputShape(3).num_elements() == rows.rows &&
                    context.InputShape(4).num_elements() == rows.rows;
  if (fits) return absl::OkStatus();
  return context.InvalidArgument("dY, Mean or InvStdDev do not have the shapes that X asks for");
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLayerNormalizationGradient(
    const PrepareContext& context) {
  const Rows rows = RowsOf(context, context.InputShape(1));
  WEFT_RETURN_IF_ERROR(CheckGradientShapes(context, rows));
  return PrepareByDType(
      context, context.InputDType(0), FloatTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        for (int i = 3; i < 5; ++i) {
          WEFT_RETURN_IF_ERROR(CheckStatistics<T>(context, context.InputDType(i)));
        }
        return std::make_unique<LayerNormalizationGradient<T>>(context, rows);
      });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "LayerNormalization", DeviceKind::kCpu, PrepareLayerNormalization);
WEFT_REGISTER_KERNEL("ai.weft", "LayerNormalizationGrad", DeviceKind::kCpu,
                     PrepareLayerNormalizationGradient);

}  // namespace weft::cpu
