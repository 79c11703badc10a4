// ArgMax, ArgMin and Hardmax.
#include <algorithm>

#include "ops/defs/rules/rules.h"
#include "ops/kernels/cpu/blocks/axis_lines.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"

namespace weft::cpu {
namespace {

struct Largest {
  template <typename C>
  static bool Beats(C a, C b) {
    return a > b;
  }
};
struct Smallest {
  template <typename C>
  static bool Beats(C a, C b) {
    return a < b;
  }
};

// The position of the best element of a line; the first NaN beats all. Of equal ones, the first,
// or the last if `last`.
template <typename Order, typename T>
int64_t BestOf(const T* line, int64_t size, int64_t stride, bool last) {
  using C = ComputeType<T>;
  int64_t best = 0;
  C value = Load(line[0]);
  for (int64_t i = 1; i < size; ++i) {
    if (value != value) break;
    const C x = Load(line[i * stride]);
    if (Order::template Beats<C>(x, value) || (last && x == value) || x != x) {
      best = i;
      value = x;
    }
  }
  return best;
}

template <typename Order>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareArg(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  const AxisLines lines = AxisLines::Make(shape, ConcreteAxis(context, "axis", 0, shape.rank()));
  const bool last = context.attributes().Int("select_last_index", 0) != 0;
  const int threads = context.threads();
  return PrepareByDType(
      context, context.InputDType(0), NumericTypes(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([=](const KernelContext& run) {
          const T* x = Input<T>(run, 0);
          int64_t* out = Output<int64_t>(run, 0);
          ParallelFor(threads, lines.size == 0 ? 0 : lines.lines,
                      5 + static_cast<double>(lines.size), 1, [&](int64_t begin, int64_t end) {
                        for (int64_t l = begin; l < end; ++l) {
                          out[l] =
                              BestOf<Order, T>(x + lines.Start(l), lines.size, lines.stride, last);
                        }
                      });
          return absl::OkStatus();
        });
      });
}

WEFT_REGISTER_KERNEL("", "ArgMax", DeviceKind::kCpu, PrepareArg<Largest>);
WEFT_REGISTER_KERNEL("", "ArgMin", DeviceKind::kCpu, PrepareArg<Smallest>);

// One at the first largest element of each line, zeros elsewhere.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareHardmax(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  const AxisLines lines = AxisLines::Make(shape, ConcreteAxis(context, "axis", -1, shape.rank()));
  const int threads = context.threads();
  return PrepareByDType(
      context, context.InputDType(0), FloatTypes(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([=](const KernelContext& run) {
          const T* x = Input<T>(run, 0);
          T* out = Output<T>(run, 0);
          ParallelFor(threads, lines.size == 0 ? 0 : lines.lines,
                      5 + 2 * static_cast<double>(lines.size), 1, [&](int64_t begin, int64_t end) {
                        for (int64_t l = begin; l < end; ++l) {
                          const int64_t start = lines.Start(l);
                          const int64_t best =
                              BestOf<Largest, T>(x + start, lines.size, lines.stride, false);
                          for (int64_t i = 0; i < lines.size; ++i) {
                            out[start + i * lines.stride] =
                                Store<T>(static_cast<ComputeType<T>>(i == best ? 1 : 0));
                          }
                        }
                      });
          return absl::OkStatus();
        });
      });
}

WEFT_REGISTER_KERNEL("", "Hardmax", DeviceKind::kCpu, PrepareHardmax);

}  // namespace
}  // namespace weft::cpu
