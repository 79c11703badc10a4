// DeformConv: each tap of each window is sampled where its offset says, then a product with W.
// Dai et al., Deformable Convolutional Networks (2017); with mask, Zhu et al. (2018).
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/operand.h"
#include "ops/kernels/cpu/parallel.h"
#include "ops/kernels/cpu/widened.h"
#include "ops/kernels/cpu/workspace.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

enum Inputs { kX, kW, kOffset, kB, kMask };

struct DeformPlan {
  std::vector<WindowAxis> axes;
  int64_t batch = 0;
  int64_t group = 1;
  int64_t offset_group = 1;
  int64_t x_channels = 0;
  int64_t y_channels = 0;
  int64_t taps = 1;
  int64_t image = 1;    // elements of X's
  int64_t windows = 1;  // of Y's
  bool bias = false;
  bool mask = false;
  int threads = 1;

  int rank() const { return static_cast<int>(axes.size()); }
};

// Corners of the cell around a point: up to 2^axes elements.
constexpr int kMaxDeformAxes = 4;
struct Corners {
  int count = 0;
  std::array<int64_t, 1 << kMaxDeformAxes> offsets;
  std::array<double, 1 << kMaxDeformAxes> weights;
};

// Corners outside the image are left out: they are zero.
void FindCorners(const DeformPlan& plan, const double* point, double factor, Corners& corners) {
  corners.count = 1;
  corners.offsets[0] = 0;
  corners.weights[0] = factor;
  for (int i = 0; i < plan.rank(); ++i) {
    const int64_t size = plan.axes[i].input;
    const double x = point[i];
    if (!(x > -1 && x < static_cast<double>(size))) {
      corners.count = 0;
      return;
    }
    const int64_t below = static_cast<int64_t>(std::floor(x));
    const double share = x - static_cast<double>(below);
    Corners next;
    for (int k = 0; k < corners.count; ++k) {
      for (int side = 0; side < 2; ++side) {
        if (below + side < 0 || below + side >= size) continue;
        next.offsets[next.count] = corners.offsets[k] * size + below + side;
        next.weights[next.count++] = corners.weights[k] * (side == 0 ? 1 - share : share);
      }
    }
    corners = next;
  }
}

// Fills columns[channel][tap][window] of one sample for window `window`.
template <typename T>
void FillColumn(const DeformPlan& plan, const KernelContext& run, int64_t n, int64_t window,
                T* columns) {
  const int rank = plan.rank();
  const int64_t per_group = plan.x_channels / plan.offset_group;
  const int64_t fields = plan.offset_group * plan.taps;  // of the mask
  for (int64_t field = 0; field < fields; ++field) {
    const int64_t tap = field % plan.taps;
    double point[kMaxDeformAxes];
    int64_t rest_of_tap = tap;
    int64_t rest_of_window = window;
    for (int i = rank - 1; i >= 0; --i) {
      const WindowAxis& axis = plan.axes[i];
      const int64_t at =
          axis.Start(rest_of_window % axis.output) + rest_of_tap % axis.kernel * axis.dilation;
      rest_of_window /= axis.output;
      rest_of_tap /= axis.kernel;
      const int64_t offset = ((n * fields + field) * rank + i) * plan.windows + window;
      point[i] = static_cast<double>(at) + static_cast<double>(Input<T>(run, kOffset)[offset]);
    }
    const double factor = plan.mask ? static_cast<double>(Input<T>(
                                          run, kMask)[(n * fields + field) * plan.windows + window])
                                    : 1.0;
    Corners corners;
    FindCorners(plan, point, factor, corners);
    const int64_t first = field / plan.taps * per_group;
    for (int64_t c = first; c < first + per_group; ++c) {
      const T* x = Input<T>(run, kX) + (n * plan.x_channels + c) * plan.image;
      double sum = 0;
      for (int k = 0; k < corners.count; ++k) {
        sum += corners.weights[k] * static_cast<double>(x[corners.offsets[k]]);
      }
      columns[(c * plan.taps + tap) * plan.windows + window] = static_cast<T>(sum);
    }
  }
}

template <typename T>
void MultiplyColumns(const DeformPlan& plan, const KernelContext& run, int64_t n, int64_t m,
                     const T* columns) {
  const int64_t depth = plan.x_channels / plan.group * plan.taps;
  const int64_t group = m / (plan.y_channels / plan.group);
  T* const y = Output<T>(run, 0) + (n * plan.y_channels + m) * plan.windows;
  std::fill_n(y, plan.windows, plan.bias ? Input<T>(run, kB)[m] : T(0));
  const T* const w = Input<T>(run, kW) + m * depth;
  for (int64_t k = 0; k < depth; ++k) {
    const T weight = w[k];
    const T* const column = columns + (group * depth + k) * plan.windows;
    for (int64_t i = 0; i < plan.windows; ++i) y[i] += weight * column[i];
  }
}

template <typename T>
std::unique_ptr<Kernel> MakeDeformConv(const DeformPlan& plan) {
  WorkspaceLayout layout;
  const size_t offset = layout.Add(plan.x_channels * plan.taps * plan.windows * sizeof(T));
  return MakeKernel(
      [plan, offset](const KernelContext& run) {
        T* const columns = static_cast<T*>(At(run.workspace, offset));
        const double per_window = 10.0 * static_cast<double>(plan.x_channels * plan.taps);
        const double per_channel =
            0.3 * static_cast<double>(plan.x_channels / plan.group * plan.taps * plan.windows);
        for (int64_t n = 0; n < plan.batch; ++n) {
          ParallelFor(plan.threads, plan.windows, per_window, 16, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) FillColumn(plan, run, n, i, columns);
          });
          ParallelFor(plan.threads, plan.y_channels, per_channel, 1,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t m = begin; m < end; ++m) {
                          MultiplyColumns(plan, run, n, m, columns);
                        }
                      });
        }
        return absl::OkStatus();
      },
      layout.total());
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDeformConv(const PrepareContext& context) {
  const Shape& x = context.InputShape(kX);
  const Shape& w = context.InputShape(kW);
  const auto window = WindowSpec::Create(
      context.attributes(), std::vector<int64_t>(w.dims().begin() + 2, w.dims().end()));
  if (!window.ok()) return context.InvalidArgument(std::string(window.status().message()));
  const auto axes = window->ResolveAll(x);
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  if (static_cast<int>(axes->size()) > kMaxDeformAxes) {
    return context.Unimplemented(absl::StrCat("more than ", kMaxDeformAxes, " image axes"));
  }
  DeformPlan plan;
  plan.axes = *axes;
  plan.batch = x.dim(0);
  plan.group = context.attributes().Int("group", 1);
  plan.offset_group = context.attributes().Int("offset_group", 1);
  plan.x_channels = x.dim(1);
  plan.y_channels = w.dim(0);
  for (const WindowAxis& axis : *axes) {
    plan.taps *= axis.kernel;
    plan.image *= axis.input;
    plan.windows *= axis.output;
  }
  plan.bias = context.HasInput(kB);
  plan.mask = context.HasInput(kMask);
  plan.threads = context.threads();
  return PrepareByDType(context, context.InputDType(kX), TypeList<float, double>{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeDeformConv<decltype(zero)>(plan);
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "DeformConv", DeviceKind::kCpu, Widened(PrepareDeformConv));

}  // namespace weft::cpu
