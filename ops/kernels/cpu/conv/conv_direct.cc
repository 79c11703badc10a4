#include "ops/kernels/cpu/conv/conv_direct.h"

#include <algorithm>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/window_rows.h"

namespace weft::cpu {
namespace {

using DirectTypes = TypeList<float, double>;

// Plane sizes and the loop over the planes of Y.
struct DirectPlan {
  DirectConv conv;
  int64_t taps = 1;
  int64_t large = 1;  // elements of the larger image
  int64_t small = 1;

  explicit DirectPlan(const DirectConv& c) : conv(c) {
    for (const WindowAxis& axis : c.axes) {
      taps *= axis.kernel;
      large *= axis.input;
      small *= axis.output;
    }
  }
  int64_t x_per_group() const { return conv.x_channels / conv.group; }
  int64_t y_per_group() const { return conv.y_channels / conv.group; }

  // body(sample, channel of Y) for each plane of Y.
  template <typename Fn>
  void ForEachPlane(Fn body) const {
    const double nanoseconds =
        0.3 * static_cast<double>(x_per_group()) * static_cast<double>(taps * small);
    ParallelFor(conv.threads, conv.batch * conv.y_channels, nanoseconds, 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    body(i / conv.y_channels, i % conv.y_channels);
                  }
                });
  }
};

template <typename T>
void ConvPlane(const DirectPlan& plan, const T* x, const T* w, T* y) {
  for (int64_t c = 0; c < plan.x_per_group(); ++c, x += plan.large, w += plan.taps) {
    ForEachWindowRow(plan.conv.axes, [&](const WindowRow& row) {
      const T weight = w[row.tap];
      T* const out = y + row.output;
      if (row.stride == 1) {
        for (int64_t o = row.first; o < row.last; ++o) out[o] += weight * x[row.input + o];
        return;
      }
      for (int64_t o = row.first; o < row.last; ++o) {
        out[o] += weight * x[row.input + o * row.stride];
      }
    });
  }
}

// `w_step`: from one channel of X to the next.
template <typename T>
void ConvTransposePlane(const DirectPlan& plan, const T* x, const T* w, int64_t w_step, T* y) {
  for (int64_t c = 0; c < plan.x_per_group(); ++c, x += plan.small, w += w_step) {
    ForEachWindowRow(plan.conv.axes, [&](const WindowRow& row) {
      const T weight = w[row.tap];
      const T* const in = x + row.output;
      for (int64_t o = row.first; o < row.last; ++o) {
        y[row.input + o * row.stride] += weight * in[o];
      }
    });
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> MakeDirectConv(const PrepareContext& context,
                                                       const DirectConv& conv) {
  const DirectPlan plan(conv);
  return PrepareByDType(
      context, context.InputDType(0), DirectTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan](const KernelContext& run) {
          plan.ForEachPlane([&](int64_t n, int64_t m) {
            const int64_t first = m / plan.y_per_group() * plan.x_per_group();
            T* const y = Output<T>(run, 0) + (n * plan.conv.y_channels + m) * plan.small;
            std::fill_n(y, plan.small, plan.conv.bias ? Input<T>(run, 2)[m] : T(0));
            ConvPlane(plan, Input<T>(run, 0) + (n * plan.conv.x_channels + first) * plan.large,
                      Input<T>(run, 1) + m * plan.x_per_group() * plan.taps, y);
          });
          return absl::OkStatus();
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeDirectConvTranspose(const PrepareContext& context,
                                                                const DirectConv& conv) {
  const DirectPlan plan(conv);
  return PrepareByDType(
      context, context.InputDType(0), DirectTypes{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan](const KernelContext& run) {
          plan.ForEachPlane([&](int64_t n, int64_t m) {
            const int64_t first = m / plan.y_per_group() * plan.x_per_group();
            const int64_t w_step = plan.y_per_group() * plan.taps;
            T* const y = Output<T>(run, 0) + (n * plan.conv.y_channels + m) * plan.large;
            std::fill_n(y, plan.large, plan.conv.bias ? Input<T>(run, 2)[m] : T(0));
            ConvTransposePlane(
                plan, Input<T>(run, 0) + (n * plan.conv.x_channels + first) * plan.small,
                Input<T>(run, 1) + first * w_step + m % plan.y_per_group() * plan.taps, w_step, y);
          });
          return absl::OkStatus();
        });
      });
}

}  // namespace weft::cpu
