// What GridSample means along one axis: the elements of an image that a point is the weighted sum
// of. For kernels of all devices. Formulas: ONNX, GridSample-22.
#ifndef WEFT_OPS_DEFS_IMAGE_GRID_AXIS_H_
#define WEFT_OPS_DEFS_IMAGE_GRID_AXIS_H_

#include <cmath>
#include <cstdint>

#include "ops/defs/image/device_function.h"

namespace weft {

// GridSample's attribute mode.
enum class SampleMode : uint8_t { kNearest, kLinear, kCubic };
// GridSample's attribute padding_mode.
enum class PaddingMode : uint8_t { kZeros, kBorder, kReflection };

// Elements along an axis that a point is made of.
WEFT_DEVICE_FUNCTION constexpr int TapsPerAxis(SampleMode mode) {
  return mode == SampleMode::kNearest ? 1 : mode == SampleMode::kLinear ? 2 : 4;
}

// One axis of the image of a GridSample node. Value type.
struct GridAxis {
  SampleMode mode = SampleMode::kLinear;
  PaddingMode padding = PaddingMode::kZeros;
  bool align_corners = false;
  int64_t size = 0;
};

// The elements along one axis, and their weights; -1: zero. The first TapsPerAxis are set, the
// other weights and all slopes of kNearest are 0.
template <typename G>
struct AxisTaps {
  int64_t indices[4];
  G weights[4];
  G slopes[4];  // of the weights, by the normalized coordinate
};

namespace grid_axis_internal {

template <typename G>
WEFT_DEVICE_FUNCTION void Clamp(G& x, G low, G high, G& slope) {
  if (x < low || x > high) slope = 0;
  x = x < low ? low : x > high ? high : x;
}

WEFT_DEVICE_FUNCTION int64_t ClampIndex(int64_t i, int64_t size) {
  return i < 0 ? 0 : i >= size ? size - 1 : i;
}

// Back and forth between the borders; `slope` is multiplied by the sign of the last direction.
template <typename G>
WEFT_DEVICE_FUNCTION G Reflect(G x, G low, G high, G& slope) {
  const G range = high - low;
  if (!(range > 0)) {
    slope = 0;
    return low;
  }
  if (x >= low && x <= high) return x;
  const G distance = x < low ? low - x : x - high;
  const G turns = std::trunc(distance / range);
  const G rest = distance - ProductAlone(turns, range);
  const bool even = turns - 2 * std::trunc(turns / 2) == 0;
  if (even) slope = -slope;
  return (x < low) == even ? low + rest : high - rest;
}

// R. Keys (1981), equation 4, with a = -0.75.
template <typename G>
WEFT_DEVICE_FUNCTION G CubicWeight(G distance) {
  constexpr G a = G(-0.75);
  const G x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}
template <typename G>
WEFT_DEVICE_FUNCTION G CubicWeightSlope(G distance) {
  constexpr G a = G(-0.75);
  const G x = std::abs(distance);
  const G slope = x <= 1 ? (3 * (a + 2) * x - 2 * (a + 3)) * x : (3 * a * x - 10 * a) * x + 8 * a;
  return distance < 0 ? -slope : slope;
}

// Between the borders of an image: the middles of its outer elements, or their outer edges.
template <typename G>
struct Borders {
  G low;
  G high;
};
template <typename G>
WEFT_DEVICE_FUNCTION Borders<G> BordersOf(const GridAxis& axis) {
  if (axis.align_corners) return {G(0), static_cast<G>(axis.size - 1)};
  return {G(-0.5), static_cast<G>(axis.size) - G(0.5)};
}

// The element that is read in place of element i; -1: none, which is zero.
template <typename G>
WEFT_DEVICE_FUNCTION int64_t IndexInside(const GridAxis& axis, int64_t i) {
  if (i >= 0 && i < axis.size) return i;
  if (axis.padding == PaddingMode::kZeros) return -1;
  if (axis.padding == PaddingMode::kBorder) return ClampIndex(i, axis.size);
  const Borders<G> borders = BordersOf<G>(axis);
  G direction = 1;
  const G reflected = Reflect(static_cast<G>(i), borders.low, borders.high, direction);
  return ClampIndex(static_cast<int64_t>(reflected), axis.size);
}

}  // namespace grid_axis_internal

// The elements around a normalized coordinate of G (float or double). REQUIRES: axis.size >= 1.
template <typename G>
WEFT_DEVICE_FUNCTION AxisTaps<G> SampleAxis(const GridAxis& axis, G normalized) {
  using namespace grid_axis_internal;  // NOLINT: in this function alone
  const G size = static_cast<G>(axis.size);
  const Borders<G> borders = BordersOf<G>(axis);
  G x = axis.align_corners ? ProductAlone((normalized + 1) / 2, size - 1)
                           : (ProductAlone(normalized + 1, size) - 1) / 2;
  G slope = (axis.align_corners ? size - 1 : size) / 2;
  if (axis.mode == SampleMode::kNearest) x = std::nearbyint(x);
  if (x < borders.low || x > borders.high) {
    // A cubic sees the border from outside, too: there its elements are moved one by one.
    if (axis.padding == PaddingMode::kBorder && axis.mode != SampleMode::kCubic) {
      Clamp(x, G(0), size - 1, slope);
    }
    if (axis.padding == PaddingMode::kReflection) {
      x = Reflect(x, borders.low, borders.high, slope);
    }
  }
  // Far outside is as outside as near it; and what is not a number is nowhere.
  if (x != x) x = G(-9);
  Clamp(x, G(-8), size + 8, slope);

  AxisTaps<G> taps{};
  const int64_t below = static_cast<int64_t>(std::floor(x));
  const G fraction = x - static_cast<G>(below);
  if (axis.mode == SampleMode::kNearest) {
    // Whole, unless reflection has moved it: then the part behind the point goes.
    taps.indices[0] = IndexInside<G>(axis, static_cast<int64_t>(x));
    taps.weights[0] = 1;
  } else if (axis.mode == SampleMode::kLinear) {
    taps.indices[0] = IndexInside<G>(axis, below);
    taps.indices[1] = IndexInside<G>(axis, below + 1);
    taps.weights[0] = 1 - fraction;
    taps.weights[1] = fraction;
    taps.slopes[0] = -slope;
    taps.slopes[1] = slope;
  } else {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int k = 0; k < 4; ++k) {
      taps.indices[k] = IndexInside<G>(axis, below + k - 1);
      const G distance = static_cast<G>(k - 1) - fraction;
      taps.weights[k] = CubicWeight(distance);
      taps.slopes[k] = -slope * CubicWeightSlope(distance);
    }
  }
  return taps;
}

}  // namespace weft

#endif  // WEFT_OPS_DEFS_IMAGE_GRID_AXIS_H_
