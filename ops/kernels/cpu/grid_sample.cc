// GridSample and AffineGrid.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/operand.h"
#include "ops/kernels/cpu/parallel.h"
#include "ops/kernels/cpu/widened.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

constexpr int kMaxTaps = 256;  // four image axes with cubic weights

enum class SampleMode : uint8_t { kNearest, kLinear, kCubic };
enum class PaddingMode : uint8_t { kZeros, kBorder, kReflection };

struct GridPlan {
  SampleMode mode = SampleMode::kLinear;
  PaddingMode padding = PaddingMode::kZeros;
  bool align_corners = false;
  std::vector<int64_t> image;  // sizes of X's image axes
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t input = 1;   // elements of X's image
  int64_t output = 1;  // of Y's
  int threads = 1;

  int axes() const { return static_cast<int>(image.size()); }
  int taps_per_axis() const {
    return mode == SampleMode::kNearest ? 1 : mode == SampleMode::kLinear ? 2 : 4;
  }
};

// The elements along one axis, and their weights; -1: zero.
template <typename G>
struct AxisTaps {
  std::array<int64_t, 4> indices;
  std::array<G, 4> weights;
};

// Back and forth between the borders.
template <typename G>
G Reflect(G x, G low, G high) {
  const G range = high - low;
  if (!(range > 0)) return low;
  if (x >= low && x <= high) return x;
  const G distance = x < low ? low - x : x - high;
  const G turns = std::trunc(distance / range);
  const G rest = distance - turns * range;
  const bool even = std::fmod(turns, G(2)) == 0;
  return (x < low) == even ? low + rest : high - rest;
}

template <typename G>
class AxisSampler {
 public:
  AxisSampler(const GridPlan& plan, int axis)
      : plan_(plan),
        size_(plan.image[axis]),
        low_(plan.align_corners ? G(0) : G(-0.5)),
        high_(plan.align_corners ? static_cast<G>(size_ - 1) : static_cast<G>(size_) - G(0.5)) {}

  AxisTaps<G> Sample(G normalized) const {
    const G size = static_cast<G>(size_);
    G x =
        plan_.align_corners ? (normalized + 1) / 2 * (size - 1) : ((normalized + 1) * size - 1) / 2;
    if (plan_.mode == SampleMode::kNearest) x = std::nearbyint(x);
    if (x < low_ || x > high_) {
      // A cubic sees the border from outside, too: there its elements are moved one by one.
      if (plan_.padding == PaddingMode::kBorder && plan_.mode != SampleMode::kCubic) {
        x = std::clamp(x, G(0), size - 1);
      }
      if (plan_.padding == PaddingMode::kReflection) x = Reflect(x, low_, high_);
    }
    // Far outside is as outside as near it; and what is not a number is nowhere.
    x = x != x ? G(-8) : std::clamp(x, G(-8), size + 8);
    return Neighbours(x);
  }

 private:
  AxisTaps<G> Neighbours(G x) const {
    AxisTaps<G> taps{};
    const int64_t below = static_cast<int64_t>(std::floor(x));
    const G fraction = x - static_cast<G>(below);
    switch (plan_.mode) {
      case SampleMode::kNearest:
        // Whole, unless reflection has moved it: then the part behind the point goes.
        taps.indices[0] = Index(static_cast<int64_t>(x));
        taps.weights[0] = 1;
        break;
      case SampleMode::kLinear:
        taps.indices = {Index(below), Index(below + 1)};
        taps.weights = {1 - fraction, fraction};
        break;
      case SampleMode::kCubic:
        for (int k = 0; k < 4; ++k) {
          taps.indices[k] = Index(below + k - 1);
          taps.weights[k] = Cubic(static_cast<G>(k - 1) - fraction);
        }
        break;
    }
    return taps;
  }

  int64_t Index(int64_t i) const {
    if (i >= 0 && i < size_) return i;
    switch (plan_.padding) {
      case PaddingMode::kZeros:
        return -1;
      case PaddingMode::kBorder:
        return std::clamp<int64_t>(i, 0, size_ - 1);
      case PaddingMode::kReflection:
        break;
    }
    const int64_t reflected = static_cast<int64_t>(Reflect(static_cast<G>(i), low_, high_));
    return std::clamp<int64_t>(reflected, 0, size_ - 1);
  }

  // R. Keys (1981), equation 4, with a = -0.75.
  static G Cubic(G distance) {
    constexpr G a = G(-0.75);
    const G x = std::abs(distance);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  }

  const GridPlan& plan_;
  const int64_t size_;
  const G low_;
  const G high_;
};

// The elements of an image that one output is the weighted sum of.
template <typename G>
struct Taps {
  int count = 0;
  std::array<int64_t, kMaxTaps> offsets;
  std::array<G, kMaxTaps> weights;
};

// `point`: normalized coordinates, those of the last axis first.
template <typename G>
void CollectTaps(const GridPlan& plan, const G* point, Taps<G>& taps) {
  taps.count = 1;
  taps.offsets[0] = 0;
  taps.weights[0] = 1;
  const int per_axis = plan.taps_per_axis();
  for (int axis = 0; axis < plan.axes(); ++axis) {
    const AxisTaps<G> own = AxisSampler<G>(plan, axis).Sample(point[plan.axes() - 1 - axis]);
    // From the last to the first, each is replaced by its products, which never overtake it.
    for (int i = taps.count - 1; i >= 0; --i) {
      const int64_t offset = taps.offsets[i];
      const G weight = taps.weights[i];
      for (int k = per_axis - 1; k >= 0; --k) {
        const bool inside = offset >= 0 && own.indices[k] >= 0;
        taps.offsets[i * per_axis + k] = inside ? offset * plan.image[axis] + own.indices[k] : -1;
        taps.weights[i * per_axis + k] = weight * own.weights[k];
      }
    }
    taps.count *= per_axis;
  }
}

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
    if (plan.mode == SampleMode::kNearest) {
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

GridPlan PlanOf(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const Shape& y = context.OutputShape(0);
  const std::string mode = context.attributes().String("mode", "linear");
  const std::string padding = context.attributes().String("padding_mode", "zeros");
  GridPlan plan;
  plan.mode = mode == "nearest" ? SampleMode::kNearest
              : mode == "cubic" ? SampleMode::kCubic
                                : SampleMode::kLinear;
  plan.padding = padding == "border"       ? PaddingMode::kBorder
                 : padding == "reflection" ? PaddingMode::kReflection
                                           : PaddingMode::kZeros;
  plan.align_corners = context.attributes().Int("align_corners", 0) != 0;
  plan.batch = x.dim(0);
  plan.channels = x.dim(1);
  for (int i = 2; i < x.rank(); ++i) plan.image.push_back(x.dim(i));
  plan.input = x.ProductOf(2, x.rank());
  plan.output = y.ProductOf(2, y.rank());
  plan.threads = context.threads();
  return plan;
}

using SampledTypes = TypeList<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                              uint32_t, uint64_t, bool>;

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGridSample(const PrepareContext& context) {
  const GridPlan plan = PlanOf(context);
  int64_t taps = 1;
  for (int i = 0; i < plan.axes() && taps <= kMaxTaps; ++i) taps *= plan.taps_per_axis();
  if (taps > kMaxTaps) {
    return context.Unimplemented(
        absl::StrCat("samples of more than ", kMaxTaps, " elements each: too many image axes"));
  }
  if (plan.input == 0 && plan.batch * plan.channels * plan.output > 0) {
    return context.InvalidArgument("X has no elements to sample");
  }
  return PrepareByDType(context, context.InputDType(0), SampledTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          if (context.InputDType(1) == DType::kFloat64) {
                            return MakeGridSample<T, double>(plan);
                          }
                          return MakeGridSample<T, float>(plan);
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
WEFT_REGISTER_KERNEL("", "AffineGrid", DeviceKind::kCpu, Widened(PrepareAffineGrid));

}  // namespace weft::cpu
