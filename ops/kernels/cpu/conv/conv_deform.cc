// DeformConv: each tap of each window is sampled where its offset says, then a product with W; and
// the sampling alone, and its gradient.
// Dai et al., Deformable Convolutional Networks (2017); with mask, Zhu et al. (2018).
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/blocks/workspace.h"
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
  int64_t fields() const { return offset_group * taps; }  // of a sample's mask
  int64_t per_group() const { return x_channels / offset_group; }
  int64_t columns() const { return x_channels * taps * windows; }  // of a sample
};

// What is sampled, and where.
template <typename T>
struct DeformOperands {
  const T* x;
  const T* offset;
  const T* mask;  // null: none
};

// Corners of the cell around a point: up to 2^axes elements.
constexpr int kMaxDeformAxes = 4;
struct Corners {
  int count = 0;
  std::array<int64_t, 1 << kMaxDeformAxes> offsets;
  std::array<double, 1 << kMaxDeformAxes> weights;
};

// Corners outside the image are left out: they are zero. With `slope_axis` the weights are those of
// the derivative along this axis.
void FindCorners(const DeformPlan& plan, const double* point, double factor, int slope_axis,
                 Corners& corners) {
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
        const double slope = side == 0 ? -1 : 1;
        const double weight = side == 0 ? 1 - share : share;
        next.weights[next.count++] = corners.weights[k] * (i == slope_axis ? slope : weight);
      }
    }
    corners = next;
  }
}

// Where tap `field % taps` of window `window` of sample n is sampled.
template <typename T>
void FindPoint(const DeformPlan& plan, const DeformOperands<T>& in, int64_t n, int64_t field,
               int64_t window, double* point) {
  int64_t rest_of_tap = field % plan.taps;
  int64_t rest_of_window = window;
  for (int i = plan.rank() - 1; i >= 0; --i) {
    const WindowAxis& axis = plan.axes[i];
    const int64_t at =
        axis.Start(rest_of_window % axis.output) + rest_of_tap % axis.kernel * axis.dilation;
    rest_of_window /= axis.output;
    rest_of_tap /= axis.kernel;
    const int64_t offset = ((n * plan.fields() + field) * plan.rank() + i) * plan.windows + window;
    point[i] = static_cast<double>(at) + static_cast<double>(in.offset[offset]);
  }
}

template <typename T>
double MaskAt(const DeformPlan& plan, const DeformOperands<T>& in, int64_t n, int64_t field,
              int64_t window) {
  if (in.mask == nullptr) return 1;
  return static_cast<double>(in.mask[(n * plan.fields() + field) * plan.windows + window]);
}

template <typename T>
double SumCorners(const Corners& corners, const T* x) {
  double sum = 0;
  for (int k = 0; k < corners.count; ++k) {
    sum += corners.weights[k] * static_cast<double>(x[corners.offsets[k]]);
  }
  return sum;
}

// Fills columns[channel][tap][window] of one sample for window `window`.
template <typename T>
void FillColumn(const DeformPlan& plan, const DeformOperands<T>& in, int64_t n, int64_t window,
                T* columns) {
  for (int64_t field = 0; field < plan.fields(); ++field) {
    double point[kMaxDeformAxes];
    FindPoint(plan, in, n, field, window, point);
    Corners corners;
    FindCorners(plan, point, MaskAt(plan, in, n, field, window), -1, corners);
    const int64_t first = field / plan.taps * plan.per_group();
    for (int64_t c = first; c < first + plan.per_group(); ++c) {
      const T* x = in.x + (n * plan.x_channels + c) * plan.image;
      columns[(c * plan.taps + field % plan.taps) * plan.windows + window] =
          static_cast<T>(SumCorners(corners, x));
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
        const DeformOperands<T> in{Input<T>(run, kX), Input<T>(run, kOffset),
                                   plan.mask ? Input<T>(run, kMask) : nullptr};
        const double per_window = 10.0 * static_cast<double>(plan.x_channels * plan.taps);
        const double per_channel =
            0.3 * static_cast<double>(plan.x_channels / plan.group * plan.taps * plan.windows);
        for (int64_t n = 0; n < plan.batch; ++n) {
          ParallelFor(plan.threads, plan.windows, per_window, 16, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) FillColumn(plan, in, n, i, columns);
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

// The plan but for what belongs to W and Y.
absl::StatusOr<DeformPlan> PlanSampling(const PrepareContext& context, const Shape& x,
                                        const std::vector<int64_t>& kernel) {
  const auto window = WindowSpec::Create(context.attributes(), kernel);
  if (!window.ok()) return context.InvalidArgument(std::string(window.status().message()));
  const auto axes = window->ResolveAll(x);
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  if (static_cast<int>(axes->size()) > kMaxDeformAxes) {
    return context.Unimplemented(absl::StrCat("more than ", kMaxDeformAxes, " image axes"));
  }
  DeformPlan plan;
  plan.axes = *axes;
  plan.batch = x.dim(0);
  plan.offset_group = context.attributes().Int("offset_group", 1);
  plan.x_channels = x.dim(1);
  for (const WindowAxis& axis : *axes) {
    plan.taps *= axis.kernel;
    plan.image *= axis.input;
    plan.windows *= axis.output;
  }
  plan.threads = context.threads();
  return plan;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDeformConv(const PrepareContext& context) {
  const Shape& w = context.InputShape(kW);
  WEFT_ASSIGN_OR_RETURN(DeformPlan plan,
                        PlanSampling(context, context.InputShape(kX),
                                     std::vector<int64_t>(w.dims().begin() + 2, w.dims().end())));
  plan.group = context.attributes().Int("group", 1);
  plan.y_channels = w.dim(0);
  plan.bias = context.HasInput(kB);
  plan.mask = context.HasInput(kMask);
  return PrepareByDType(context, context.InputDType(kX), TypeList<float, double>{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeDeformConv<decltype(zero)>(plan);
                        });
}

// ---- DeformColumns(X, offset, mask) and its gradient, with dcolumns in front.

absl::StatusOr<DeformPlan> PlanColumns(const PrepareContext& context, int x) {
  WEFT_ASSIGN_OR_RETURN(DeformPlan plan, PlanSampling(context, context.InputShape(x),
                                                      context.attributes().Ints("kernel_shape")));
  plan.mask = context.HasInput(x + 2);
  return plan;
}

template <typename T>
DeformOperands<T> OperandsFrom(const DeformPlan& plan, const KernelContext& run, int x) {
  return {Input<T>(run, x), Input<T>(run, x + 1), plan.mask ? Input<T>(run, x + 2) : nullptr};
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDeformColumns(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DeformPlan plan, PlanColumns(context, 0));
  return PrepareByDType(context, context.InputDType(0), TypeList<float, double>{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([plan](const KernelContext& run) {
                            const DeformOperands<T> in = OperandsFrom<T>(plan, run, 0);
                            const double nanoseconds =
                                10.0 * static_cast<double>(plan.x_channels * plan.taps);
                            ParallelFor(plan.threads, plan.batch * plan.windows, nanoseconds, 16,
                                        [&](int64_t begin, int64_t end) {
                                          for (int64_t i = begin; i < end; ++i) {
                                            const int64_t n = i / plan.windows;
                                            FillColumn(plan, in, n, i % plan.windows,
                                                       Output<T>(run, 0) + n * plan.columns());
                                          }
                                        });
                            return absl::OkStatus();
                          });
                        });
}

// dX of channel `c` of sample n: what all taps of all windows give back.
template <typename T>
void SpreadChannel(const DeformPlan& plan, const DeformOperands<T>& in, int64_t n, int64_t c,
                   const T* dcolumns, T* dx) {
  T* const image = dx + (n * plan.x_channels + c) * plan.image;
  std::fill_n(image, plan.image, T(0));
  for (int64_t tap = 0; tap < plan.taps; ++tap) {
    const int64_t field = c / plan.per_group() * plan.taps + tap;
    const T* const row = dcolumns + n * plan.columns() + (c * plan.taps + tap) * plan.windows;
    for (int64_t window = 0; window < plan.windows; ++window) {
      double point[kMaxDeformAxes];
      FindPoint(plan, in, n, field, window, point);
      Corners corners;
      FindCorners(plan, point, MaskAt(plan, in, n, field, window), -1, corners);
      for (int k = 0; k < corners.count; ++k) {
        image[corners.offsets[k]] +=
            static_cast<T>(corners.weights[k] * static_cast<double>(row[window]));
      }
    }
  }
}

// doffset and dmask (each may be null) of one tap of one window.
template <typename T>
void SlopesAt(const DeformPlan& plan, const DeformOperands<T>& in, int64_t n, int64_t field,
              int64_t window, const T* dcolumns, T* doffset, T* dmask) {
  double point[kMaxDeformAxes];
  FindPoint(plan, in, n, field, window, point);
  const double mask = MaskAt(plan, in, n, field, window);
  for (int axis = doffset == nullptr ? plan.rank() : 0; axis <= plan.rank(); ++axis) {
    const bool of_mask = axis == plan.rank();
    if (of_mask && dmask == nullptr) break;
    Corners corners;
    FindCorners(plan, point, of_mask ? 1 : mask, of_mask ? -1 : axis, corners);
    double sum = 0;
    const int64_t first = field / plan.taps * plan.per_group();
    for (int64_t c = first; c < first + plan.per_group(); ++c) {
      const int64_t row = n * plan.columns() + (c * plan.taps + field % plan.taps) * plan.windows;
      sum += static_cast<double>(dcolumns[row + window]) *
             SumCorners(corners, in.x + (n * plan.x_channels + c) * plan.image);
    }
    const int64_t place = n * plan.fields() + field;
    if (of_mask) {
      dmask[place * plan.windows + window] = static_cast<T>(sum);
    } else {
      doffset[(place * plan.rank() + axis) * plan.windows + window] = static_cast<T>(sum);
    }
  }
}

using Wanted = std::array<bool, 3>;  // dX, doffset, dmask

template <typename T>
void RunDeformColumnsGrad(const DeformPlan& plan, const Wanted& wanted, const KernelContext& run) {
  const DeformOperands<T> in = OperandsFrom<T>(plan, run, 1);
  const T* const dcolumns = Input<T>(run, 0);
  if (wanted[0]) {
    T* const dx = Output<T>(run, 0);
    const double nanoseconds = 20.0 * static_cast<double>(plan.taps * plan.windows);
    ParallelFor(plan.threads, plan.batch * plan.x_channels, nanoseconds, 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    SpreadChannel(plan, in, i / plan.x_channels, i % plan.x_channels, dcolumns, dx);
                  }
                });
  }
  if (!wanted[1] && !wanted[2]) return;
  T* const doffset = wanted[1] ? Output<T>(run, 1) : nullptr;
  T* const dmask = wanted[2] ? Output<T>(run, 2) : nullptr;
  const double nanoseconds = 30.0 + 10.0 * static_cast<double>(plan.per_group());
  ParallelFor(plan.threads, plan.batch * plan.fields() * plan.windows, nanoseconds, 16,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const int64_t place = i / plan.windows;
                  SlopesAt(plan, in, place / plan.fields(), place % plan.fields(), i % plan.windows,
                           dcolumns, doffset, dmask);
                }
              });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDeformColumnsGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DeformPlan plan, PlanColumns(context, 1));
  const Wanted wanted = {context.HasOutput(0), context.HasOutput(1), context.HasOutput(2)};
  return PrepareByDType(context, context.InputDType(0), TypeList<float, double>{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([plan, wanted](const KernelContext& run) {
                            RunDeformColumnsGrad<T>(plan, wanted, run);
                            return absl::OkStatus();
                          });
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "DeformConv", DeviceKind::kCpu, Widened(PrepareDeformConv));
WEFT_REGISTER_KERNEL("ai.weft", "DeformColumns", DeviceKind::kCpu, Widened(PrepareDeformColumns));
WEFT_REGISTER_KERNEL("ai.weft", "DeformColumnsGrad", DeviceKind::kCpu,
                     Widened(PrepareDeformColumnsGrad));

}  // namespace weft::cpu
