// ReduceSum, ReduceMean and SumToShape.
#include <algorithm>
#include <type_traits>

#include "ops/axes.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/reduction/reduce_plain.h"
#include "ops/kernels/cpu/reduction/reduce_plan.h"
#include "ops/kernels/cpu/reduction/reduce_simd.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

constexpr double kSumNanoseconds = 0.15;  // per element

// ---- Sums of float32; each output is `sum / divisor`.

// The innermost reduced axis is contiguous.
void SumRuns(const ReducePlan& plan, double divisor, int threads, const float* x, float* out) {
  const double cost = kSumNanoseconds * static_cast<double>(plan.rows * plan.run.size);
  ParallelFor(threads, plan.outputs, 5 + cost, 1, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const float* base = x + plan.KeptOffset(o);
      double total = 0;
      for (int64_t r = 0; r < plan.rows; ++r) {
        total += SumFloat(base + plan.RowOffset(r), plan.run.size);
      }
      out[o] = static_cast<float>(total / divisor);
    }
  });
}

// The innermost kept axis is contiguous: its elements are summed side by side, a tile at a time.
void SumTiles(const ReducePlan& plan, double divisor, int threads, const float* x, float* out) {
  const int64_t width = plan.kept.back().size;
  const int64_t tiles = (width + kColumnTile - 1) / kColumnTile;
  const int64_t groups = plan.outputs / width;
  const double cost =
      kSumNanoseconds * static_cast<double>(plan.rows * plan.run.size * kColumnTile);
  ParallelFor(threads, groups * tiles, cost, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t column = t % tiles * kColumnTile;
      const int64_t columns = std::min(kColumnTile, width - column);
      const int64_t first = t / tiles * width + column;
      const float* base = x + plan.KeptOffset(first);
      double totals[kColumnTile] = {};
      for (int64_t r = 0; r < plan.rows; ++r) {
        SumColumns(base + plan.RowOffset(r), plan.run.size, plan.run.stride, columns, totals);
      }
      for (int64_t c = 0; c < columns; ++c) {
        out[first + c] = static_cast<float>(totals[c] / divisor);
      }
    }
  });
}

// ---- Other types: plain loops.

// 64-bit sums of whole numbers wrap around; floats are added in double.
template <typename T>
struct SumReducer {
  using Total = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  static constexpr Total kInitial = 0;
  static void Add(Total& total, ComputeType<T> x) { total += static_cast<Total>(x); }
  static T Result(Total total, double divisor) {
    if constexpr (std::is_integral_v<T>) {
      const int64_t whole = static_cast<int64_t>(divisor);
      if (whole == 1) return static_cast<T>(total);
      if (whole == 0) return 0;
      if constexpr (std::is_unsigned_v<T>) return static_cast<T>(total / uint64_t(whole));
      return static_cast<T>(static_cast<int64_t>(total) / whole);
    } else {
      return Store<T>(static_cast<ComputeType<T>>(total / divisor));
    }
  }
};

// ---- Factories.

template <typename T>
std::unique_ptr<Kernel> MakeSum(ReducePlan plan, double divisor, int threads) {
  return MakeKernel([=, plan = std::move(plan)](const KernelContext& context) {
    const T* x = Input<T>(context, 0);
    T* out = Output<T>(context, 0);
    if (plan.outputs == 0) return absl::OkStatus();
    if constexpr (std::is_same_v<T, float>) {
      if (!plan.reduces_nothing() && plan.has_columns()) {
        SumTiles(plan, divisor, threads, x, out);
        return absl::OkStatus();
      }
      if (!plan.reduces_nothing() && plan.run.stride == 1) {
        SumRuns(plan, divisor, threads, x, out);
        return absl::OkStatus();
      }
    }
    ReducePlain<SumReducer<T>>(plan, divisor, threads, x, out);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSum(const PrepareContext& context,
                                                   const std::vector<bool>& reduced,
                                                   double divisor) {
  ReducePlan plan = ReducePlan::Make(context.InputShape(0), reduced);
  return PrepareByDType(context, context.InputDType(0), NumericTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeSum<decltype(zero)>(std::move(plan), divisor,
                                                         context.threads());
                        });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareReduceSum(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxesOf(context));
  return PrepareSum(context, reduced, 1);
}

// Divides by the global count, so that the results of shards add up.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareReduceMean(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxesOf(context));
  const int64_t count = ReducedCount(context.InputSlice(0).global_shape, reduced);
  return PrepareSum(context, reduced, static_cast<double>(count));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSumToShape(const PrepareContext& context) {
  const Shape& from = context.InputShape(0);
  const Shape& to = context.OutputShape(0);
  std::vector<bool> reduced(from.rank());
  for (int d = 0; d < from.rank(); ++d) {
    const int axis = d - (from.rank() - to.rank());
    reduced[d] = axis < 0 || to.dim(axis) != from.dim(d);
  }
  return PrepareSum(context, reduced, 1);
}

WEFT_REGISTER_KERNEL("", "ReduceSum", DeviceKind::kCpu, PrepareReduceSum);
WEFT_REGISTER_KERNEL("", "ReduceMean", DeviceKind::kCpu, PrepareReduceMean);
WEFT_REGISTER_KERNEL(kWeftDomain, "SumToShape", DeviceKind::kCpu, Widened(PrepareSumToShape));

}  // namespace
}  // namespace weft::cpu
