// Where the regions of RoiAlign and MaxRoiPool lie, and which pixels their parts have. For kernels
// of all devices. Formulas: ONNX, RoiAlign-22 and MaxRoiPool-22; R. Girshick, Fast R-CNN (2015),
// section 2.1.
#ifndef WEFT_OPS_DEFS_IMAGE_ROI_REGION_H_
#define WEFT_OPS_DEFS_IMAGE_ROI_REGION_H_

#include <cmath>
#include <cstdint>

#include "ops/defs/image/device_function.h"

namespace weft {

// The options of one node. An axis is 0 for rows, y, and 1 for columns, x. Value type.
struct RoiSpec {
  int64_t pooled[2] = {0, 0};  // elements of a result
  double scale = 1;            // of corners to pixels
  int64_t sampling_ratio = 0;  // samples of an element along an axis; 0: as many as it has pixels
  bool half_pixel = true;      // coordinate_transformation_mode
};

// ---- RoiAlign.

inline constexpr int64_t kMaxRoiSamples = 1 << 14;  // along one axis of one output element
inline constexpr double kMaxRoiStart = 1e15;        // pixels from the image's corner

// Where the samples of one region lie, in pixels.
struct AlignedRegion {
  double start[2];
  double bin[2];    // size of an output element
  int64_t grid[2];  // samples along it
  bool fixed[2];    // so small that it counts as one pixel

  // Of a sample of an output element, along an axis.
  WEFT_DEVICE_FUNCTION double Position(int axis, int64_t output, int64_t sample) const {
    return start[axis] + ProductAlone(Bins(axis, output, sample), bin[axis]);
  }
  // How many bins that is from the start.
  WEFT_DEVICE_FUNCTION double Bins(int axis, int64_t output, int64_t sample) const {
    return static_cast<double>(output) +
           (static_cast<double>(sample) + 0.5) / static_cast<double>(grid[axis]);
  }
};

// Sets what `region` has of an axis, of a region with corners at `low` and `high`. Returns how many
// samples an element asks for; more than kMaxRoiSamples, or NaN, are none.
WEFT_DEVICE_FUNCTION double AlignAxis(const RoiSpec& spec, int axis, double low, double high,
                                      AlignedRegion& region) {
  const double offset = spec.half_pixel ? 0.5 : 0.0;
  const double start = ProductAlone(low, spec.scale) - offset;
  double extent = ProductAlone(high, spec.scale) - offset - start;
  region.fixed[axis] = !spec.half_pixel && extent <= 1.0;
  if (region.fixed[axis]) extent = 1;
  region.start[axis] = start;
  region.bin[axis] = extent / static_cast<double>(spec.pooled[axis]);
  const double samples = spec.sampling_ratio > 0 ? static_cast<double>(spec.sampling_ratio)
                                                 : std::ceil(region.bin[axis]);
  const bool fits = samples > 0 && samples <= static_cast<double>(kMaxRoiSamples);
  region.grid[axis] = fits ? static_cast<int64_t>(samples) : 0;
  return samples;
}

// Along one axis: the two pixels beside a position, and the share of the second.
struct PixelPair {
  int64_t low = 0;
  int64_t high = 0;
  double share = 0;
  double slope = 0;  // of the share, by the position
};

// False: the position is outside of an image of `size` pixels, or not a number. REQUIRES: size
// >= 1.
WEFT_DEVICE_FUNCTION bool FindPixels(double position, int64_t size, PixelPair& found) {
  if (!(position >= -1.0 && position <= static_cast<double>(size))) return false;
  const double inside = position < 0.0 ? 0.0 : position;
  found.low = static_cast<int64_t>(inside);
  if (found.low >= size - 1) {
    found = {size - 1, size - 1, 0, 0};
  } else {
    found.high = found.low + 1;
    found.share = inside - static_cast<double>(found.low);
    found.slope = position > 0 ? 1 : 0;
  }
  return true;
}

// ---- MaxRoiPool.

// Along one axis: a region of whole pixels.
struct PooledAxis {
  double start;  // whole
  double bin;    // pixels of an output element, at least a part of one
};

// Of a region with corners at `low` and `high`.
WEFT_DEVICE_FUNCTION PooledAxis PoolAxis(const RoiSpec& spec, int axis, double low, double high) {
  const double first = std::round(ProductAlone(low, spec.scale));
  const double extent = std::round(ProductAlone(high, spec.scale)) - first + 1;
  return {first, (extent > 1.0 ? extent : 1.0) / static_cast<double>(spec.pooled[axis])};
}

// The pixels [first, last) of an output element along one axis; none where first is last.
struct PixelRange {
  int64_t first;
  int64_t last;
};

// Of output element i, in an image of `limit` pixels. REQUIRES: |axis.start| < kMaxRoiStart.
WEFT_DEVICE_FUNCTION PixelRange PixelsOf(const PooledAxis& axis, int64_t i, int64_t limit) {
  const int64_t start = static_cast<int64_t>(axis.start);
  const int64_t first = static_cast<int64_t>(std::floor(static_cast<double>(i) * axis.bin)) + start;
  const int64_t last =
      static_cast<int64_t>(std::ceil(static_cast<double>(i + 1) * axis.bin)) + start;
  return {first < 0       ? 0
          : first > limit ? limit
                          : first,
          last < 0       ? 0
          : last > limit ? limit
                         : last};
}

}  // namespace weft

#endif  // WEFT_OPS_DEFS_IMAGE_ROI_REGION_H_
