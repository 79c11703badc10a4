// Where GridSample samples: the elements of an image that a point of the grid is the weighted sum
// of.
#ifndef WEFT_OPS_KERNELS_CPU_IMAGE_GRID_SAMPLER_H_
#define WEFT_OPS_KERNELS_CPU_IMAGE_GRID_SAMPLER_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/kernel.h"

namespace weft::cpu {

inline constexpr int kMaxTaps = 256;  // four image axes with cubic weights

// GridSample's attribute mode.
enum class SampleMode : uint8_t { kNearest, kLinear, kCubic };
// GridSample's attribute padding_mode.
enum class PaddingMode : uint8_t { kZeros, kBorder, kReflection };

// The sizes and options of one GridSample node, computed when its kernel is prepared.
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
  std::array<G, 4> slopes;  // of the weights, by the normalized coordinate
};

// Back and forth between the borders; `slope` is multiplied by the sign of the last direction.
template <typename G>
G Reflect(G x, G low, G high, G& slope) {
  const G range = high - low;
  if (!(range > 0)) {
    slope = 0;
    return low;
  }
  if (x >= low && x <= high) return x;
  const G distance = x < low ? low - x : x - high;
  const G turns = std::trunc(distance / range);
  const G rest = distance - turns * range;
  const bool even = std::fmod(turns, G(2)) == 0;
  if (even) slope = -slope;
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
    G slope = (plan_.align_corners ? size - 1 : size) / 2;
    if (plan_.mode == SampleMode::kNearest) x = std::nearbyint(x);
    if (x < low_ || x > high_) {
      // A cubic sees the border from outside, too: there its elements are moved one by one.
      if (plan_.padding == PaddingMode::kBorder && plan_.mode != SampleMode::kCubic) {
        Clamp(x, G(0), size - 1, slope);
      }
      if (plan_.padding == PaddingMode::kReflection) x = Reflect(x, low_, high_, slope);
    }
    // Far outside is as outside as near it; and what is not a number is nowhere.
    if (x != x) x = G(-9);
    Clamp(x, G(-8), size + 8, slope);
    return Neighbours(x, slope);
  }

 private:
  static void Clamp(G& x, G low, G high, G& slope) {
    if (x < low || x > high) slope = 0;
    x = std::clamp(x, low, high);
  }

  AxisTaps<G> Neighbours(G x, G slope) const {
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
        taps.slopes = {-slope, slope};
        break;
      case SampleMode::kCubic:
        for (int k = 0; k < 4; ++k) {
          taps.indices[k] = Index(below + k - 1);
          const G distance = static_cast<G>(k - 1) - fraction;
          taps.weights[k] = Cubic(distance);
          taps.slopes[k] = -slope * CubicSlope(distance);
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
    G direction = 1;
    const int64_t reflected =
        static_cast<int64_t>(Reflect(static_cast<G>(i), low_, high_, direction));
    return std::clamp<int64_t>(reflected, 0, size_ - 1);
  }

  // R. Keys (1981), equation 4, with a = -0.75.
  static G Cubic(G distance) {
    constexpr G a = G(-0.75);
    const G x = std::abs(distance);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  }
  static G CubicSlope(G distance) {
    constexpr G a = G(-0.75);
    const G x = std::abs(distance);
    const G slope = x <= 1 ? (3 * (a + 2) * x - 2 * (a + 3)) * x : (3 * a * x - 10 * a) * x + 8 * a;
    return distance < 0 ? -slope : slope;
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

// `point`: normalized coordinates, those of the last axis first. With `slope_axis` the weights are
// their derivatives by the coordinate of this axis.
template <typename G>
void CollectTaps(const GridPlan& plan, const G* point, Taps<G>& taps, int slope_axis = -1) {
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
        taps.weights[i * per_axis + k] =
            weight * (axis == slope_axis ? own.slopes[k] : own.weights[k]);
      }
    }
    taps.count *= per_axis;
  }
}

// From X [batch, channels, image...] and Y's shape.
inline GridPlan MakeGridPlan(const PrepareContext& context, const Shape& x, const Shape& y) {
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

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_IMAGE_GRID_SAMPLER_H_
