// GridSample and AffineGrid.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/image/grid_sampler.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

template <typename T, typename S>
T Converted(S value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else {
    // Towards zero, within the type.
    if (!(value > static_cast<S>(std::numeric_limits<T>::lowest()))) {
      return std::numeric_limits<T>::lowest();
    }
    if (value >= static_cast<S>(std::numeric_limits<T>::max())) {
      return std::numeric_limits<T>::max();
    }
    return static_cast<T>(value);
  }
}

template <typename T, typename G>
void SamplePoint(const GridPlan& plan, const Taps<G>& taps, const T* x, T* y) {
  using S = std::conditional_t<std::is_same_v<T, float> && std::is_same_v<G, float>, float, double>;
  for (int64_t c = 0; c < plan.channels; ++c, x += plan.input, y += plan.output) {
    if (plan.options.mode == SampleMode::kNearest) {
      *y = taps.offsets[0] < 0 ? T(0) : x[taps.offsets[0]];
      continue;
    }
    S sum = 0;
    for (int k = 0; k < taps.count; ++k) {
      if (taps.offsets[k] < 0) continue;
      sum += static_cast<S>(taps.weights[k]) * static_cast<S>(x[taps.offsets[k]]);
    }
    *y = Converted<T, S>(sum);
  }
}

template <typename T, typename G>
std::unique_ptr<Kernel> MakeGridSample(const GridPlan& plan) {
  return MakeKernel([plan](const KernelContext& run) {
    const double nanoseconds = 20.0 * plan.axes() + 5.0 * static_cast<double>(plan.channels);
    ParallelFor(plan.threads, plan.batch * plan.output, nanoseconds, 16,
                [&](int64_t begin, int64_t end) {
                  Taps<G> taps;
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t n = i / plan.output;
                    CollectTaps(plan, Input<G>(run, 1) + i * plan.axes(), taps);
                    SamplePoint<T, G>(
                        plan, taps, Input<T>(run, 0) + n * plan.channels * plan.input,
                        Output<T>(run, 0) + n * plan.channels * plan.output + i % plan.output);
                  }
                });
    return absl::OkStatus();
  });
}

using SampledTypes = TypeList<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                              uint32_t, uint64_t, bool>;

absl::Status CheckPlan(const PrepareContext& context, const GridPlan& plan) {
  int64_t taps = 1;
  for (int i = 0; i < plan.axes() && taps <= kMaxTaps; ++i) taps *= plan.taps_per_axis();
  if (taps > kMaxTaps) {
    return context.Unimplemented(
        absl::StrCat("samples of more than ", kMaxTaps, " elements each: too many image axes"));
  }
  if (plan.input == 0 && plan.batch * plan.channels * plan.output > 0) {
    return context.InvalidArgument("X has no elements to sample");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGridSample(const PrepareContext& context) {
  const GridPlan plan = MakeGridPlan(context, context.InputShape(0), context.OutputShape(0));
  WEFT_RETURN_IF_ERROR(CheckPlan(context, plan));
  return PrepareByDType(context, context.InputDType(0), SampledTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          if (context.InputDType(1) == DType::kFloat64) {
                            return MakeGridSample<T, double>(plan);
                          }
                          return MakeGridSample<T, float>(plan);
                        });
}

// ---- GridSampleGrad(dY, X, grid) -> dX, dgrid.

// dX of one channel of sample n: every point gives back to what it was the sum of.
template <typename T>
void SpreadPlane(const GridPlan& plan, const KernelContext& run, int64_t n, int64_t c) {
  const int64_t plane = n * plan.channels + c;
  const T* const dy = Input<T>(run, 0) + plane * plan.output;
  const T* const grid = Input<T>(run, 2) + n * plan.output * plan.axes();
  T* const dx = Output<T>(run, 0) + plane * plan.input;
  std::fill_n(dx, plan.input, T(0));
  Taps<T> taps;
  for (int64_t i = 0; i < plan.output; ++i) {
    CollectTaps(plan, grid + i * plan.axes(), taps);
    for (int k = 0; k < taps.count; ++k) {
      if (taps.offsets[k] >= 0) dx[taps.offsets[k]] += taps.weights[k] * dy[i];
    }
  }
}

// dgrid of point i of sample n: dY times the slope of each channel.
template <typename T>
void SlopesOfPoint(const GridPlan& plan, const KernelContext& run, int64_t n, int64_t i) {
  const int64_t point = (n * plan.output + i) * plan.axes();
  for (int axis = 0; axis < plan.axes(); ++axis) {
    Taps<T> taps;
    CollectTaps(plan, Input<T>(run, 2) + point, taps, axis);
    double sum = 0;
    for (int64_t c = 0; c < plan.channels; ++c) {
      const T* const x = Input<T>(run, 1) + (n * plan.channels + c) * plan.input;
      double slope = 0;
      for (int k = 0; k < taps.count; ++k) {
        if (taps.offsets[k] < 0) continue;
        slope += static_cast<double>(taps.weights[k]) * static_cast<double>(x[taps.offsets[k]]);
      }
      sum +=
          slope * static_cast<double>(Input<T>(run, 0)[(n * plan.channels + c) * plan.output + i]);
    }
    // Coordinates of the last axis come first.
    Output<T>(run, 1)[point + plan.axes() - 1 - axis] = static_cast<T>(sum);
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGridSampleGrad(const PrepareContext& context) {
  const GridPlan plan = MakeGridPlan(context, context.InputShape(1), context.InputShape(0));
  WEFT_RETURN_IF_ERROR(CheckPlan(context, plan));
  const bool image = context.HasOutput(0);
  const bool grid = context.HasOutput(1);
  return PrepareByDType(
      context, context.InputDType(0), TypeList<float, double>{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([plan, image, grid](const KernelContext& run) {
          const double taps = 30.0 * plan.axes();
          if (image) {
            ParallelFor(plan.threads, plan.batch * plan.channels,
                        taps * static_cast<double>(plan.output), 1,
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            SpreadPlane<T>(plan, run, i / plan.channels, i % plan.channels);
                          }
                        });
          }
          if (grid) {
            ParallelFor(plan.threads, plan.batch * plan.output,
                        taps * static_cast<double>(plan.channels), 16,
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            SlopesOfPoint<T>(plan, run, i / plan.output, i % plan.output);
                          }
                        });
          }
          return absl::OkStatus();
        });
      });
}

// ---- AffineGrid.

// Normalized coordinates of the centres, or with aligned corners of the points from -1 to 1.
template <typename T>
T Centre(int64_t i, int64_t size, bool align_corners) {
  const T n = static_cast<T>(size);
  if (!align_corners) return (2 * static_cast<T>(i) + 1) / n - 1;
  return size == 1 ? T(0) : 2 * static_cast<T>(i) / (n - 1) - 1;
}

template <typename T>
void AffineRow(const T* theta, int axes, const T* centre, T* grid) {
  for (int i = 0; i < axes; ++i) {
    T sum = theta[i * (axes + 1) + axes];
    for (int k = 0; k < axes; ++k) sum += theta[i * (axes + 1) + k] * centre[k];
    grid[i] = sum;
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAffineGrid(const PrepareContext& context) {
  const Shape grid = context.OutputShape(0);
  const bool align = context.attributes().Int("align_corners", 0) != 0;
  const int threads = context.threads();
  const int axes = grid.rank() - 2;
  const int64_t points = grid.ProductOf(1, grid.rank() - 1);
  return PrepareByDType(
      context, context.InputDType(0), TypeList<float, double>{},
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel([=](const KernelContext& run) {
          ParallelFor(threads, grid.dim(0) * points, 5, 64, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              T centre[3];  // of the last axis first
              int64_t rest = i % points;
              for (int k = 0; k < axes; ++k) {
                const int64_t size = grid.dim(axes - k);
                centre[k] = Centre<T>(rest % size, size, align);
                rest /= size;
              }
              AffineRow(Input<T>(run, 0) + i / points * axes * (axes + 1), axes, centre,
                        Output<T>(run, 0) + i * axes);
            }
          });
          return absl::OkStatus();
        });
      });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "GridSample", DeviceKind::kCpu, Widened(PrepareGridSample));
WEFT_REGISTER_KERNEL("ai.weft", "GridSampleGrad", DeviceKind::kCpu, Widened(PrepareGridSampleGrad));
WEFT_REGISTER_KERNEL("", "AffineGrid", DeviceKind::kCpu, Widened(PrepareAffineGrid));

}  // namespace weft::cpu
