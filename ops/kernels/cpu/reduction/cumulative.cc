// CumSum and CumProd: whole numbers in 64 bits, wrapping around; floats in double.
#include <algorithm>
#include <type_traits>

#include "ops/kernels/cpu/blocks/axis_lines.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

struct SumStep {
  static constexpr int kInitial = 0;
  template <typename Total>
  static Total Of(Total total, Total x) {
    return total + x;
  }
};
struct ProductStep {
  static constexpr int kInitial = 1;
  template <typename Total>
  static Total Of(Total total, Total x) {
    return total * x;
  }
};

// Neighbouring lines that are walked side by side.
constexpr int64_t kColumns = 64;

// `columns` <= kColumns neighbouring lines from element `start` on.
template <typename Step, typename T>
void Accumulate(const AxisLines& lines, int64_t start, int64_t columns, bool exclusive,
                bool reverse, const T* x, T* out) {
  using Total = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  Total totals[kColumns];
  std::fill(totals, totals + columns, static_cast<Total>(Step::kInitial));
  for (int64_t i = 0; i < lines.size; ++i) {
    const int64_t at = start + (reverse ? lines.size - 1 - i : i) * lines.stride;
    for (int64_t c = 0; c < columns; ++c) {
      const Total before = totals[c];
      totals[c] = Step::template Of<Total>(before, static_cast<Total>(Load(x[at + c])));
      out[at + c] = Store<T>(static_cast<ComputeType<T>>(exclusive ? before : totals[c]));
    }
  }
}

template <typename Step, typename T>
void AccumulateAll(const AxisLines& lines, bool exclusive, bool reverse, int threads, const T* x,
                   T* out) {
  const int64_t columns = std::min(lines.stride, kColumns);
  const int64_t tiles = (lines.stride + columns - 1) / std::max<int64_t>(columns, 1);
  const int64_t groups = lines.stride == 0 ? 0 : lines.lines / lines.stride;
  const double cost = 5 + static_cast<double>(lines.size * columns);
  ParallelFor(threads, groups * tiles, cost, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = t % tiles * columns;
      const int64_t start = t / tiles * lines.size * lines.stride + first;
      Accumulate<Step, T>(lines, start, std::min(columns, lines.stride - first), exclusive, reverse,
                          x, out);
    }
  });
}

// The axis is an operand that may be computed.
template <typename Step>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareCumulative(const PrepareContext& context) {
  const Shape shape = context.InputShape(0);
  const bool exclusive = context.attributes().Int("exclusive", 0) != 0;
  const bool reverse = context.attributes().Int("reverse", 0) != 0;
  const bool wide_axis = context.InputDType(1) == DType::kInt64;
  const int threads = context.threads();
  return PrepareByDType(
      context, context.InputDType(0), NumericTypes(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([=](const KernelContext& run) -> absl::Status {
          const int64_t given = wide_axis ? *Input<int64_t>(run, 1) : *Input<int32_t>(run, 1);
          if (shape.rank() == 0 && (given == 0 || given == -1)) {
            AccumulateAll<Step, T>(AxisLines{}, exclusive, reverse, 1, Input<T>(run, 0),
                                   Output<T>(run, 0));
            return absl::OkStatus();
          }
          WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, shape.rank()));
          AccumulateAll<Step, T>(AxisLines::Make(shape, axis), exclusive, reverse, threads,
                                 Input<T>(run, 0), Output<T>(run, 0));
          return absl::OkStatus();
        });
      });
}

// One line of CumProdGrad: the sums of what comes behind an element first, then the products of
// what is before it.
template <typename T>
void CumProdGradLine(const AxisLines& lines, int64_t start, bool exclusive, bool reverse,
                     const T* dy, const T* x, T* dx) {
  const auto at = [&](int64_t i) {
    return start + (reverse ? lines.size - 1 - i : i) * lines.stride;
  };
  double behind = 0;  // s of the element after this one
  for (int64_t i = lines.size - 1; i >= 0; --i) {
    const bool last = i + 1 == lines.size;
    const double own = exclusive ? (last ? 0.0 : Load(dy[at(i + 1)])) : Load(dy[at(i)]);
    const double factor = last ? 0.0 : Load(x[at(i + 1)]);
    behind = own + factor * behind;
    dx[at(i)] = Store<T>(static_cast<ComputeType<T>>(behind));
  }
  double before = 1;
  for (int64_t i = 0; i < lines.size; ++i) {
    const double slope = before * static_cast<double>(Load(dx[at(i)]));
    dx[at(i)] = Store<T>(static_cast<ComputeType<T>>(slope));
    before *= Load(x[at(i)]);
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCumProdGrad(const PrepareContext& context) {
  const Shape shape = context.InputShape(1);
  const bool exclusive = context.attributes().Int("exclusive", 0) != 0;
  const bool reverse = context.attributes().Int("reverse", 0) != 0;
  const bool wide_axis = context.InputDType(2) == DType::kInt64;
  const int threads = context.threads();
  return PrepareByDType(
      context, context.InputDType(1), TypeList<float, double>{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([=](const KernelContext& run) -> absl::Status {
          const int64_t given = wide_axis ? *Input<int64_t>(run, 2) : *Input<int32_t>(run, 2);
          AxisLines lines;
          if (shape.rank() > 0) {
            WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, shape.rank()));
            lines = AxisLines::Make(shape, axis);
          }
          const double cost = 5 + 4 * static_cast<double>(lines.size);
          ParallelFor(threads, lines.lines, cost, 1, [&](int64_t begin, int64_t end) {
            for (int64_t line = begin; line < end; ++line) {
              CumProdGradLine<T>(lines, lines.Start(line), exclusive, reverse, Input<T>(run, 0),
                                 Input<T>(run, 1), Output<T>(run, 0));
            }
          });
          return absl::OkStatus();
        });
      });
}

WEFT_REGISTER_KERNEL("", "CumSum", DeviceKind::kCpu, PrepareCumulative<SumStep>);
WEFT_REGISTER_KERNEL("", "CumProd", DeviceKind::kCpu, PrepareCumulative<ProductStep>);
WEFT_REGISTER_KERNEL("ai.weft", "CumProdGrad", DeviceKind::kCpu, Widened(PrepareCumProdGrad));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "CumProdGrad", PrepareCumProdGrad);

}  // namespace
}  // namespace weft::cpu
