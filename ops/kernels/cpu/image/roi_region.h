// The regions of RoiAlign, and where its samples lie.
#ifndef WEFT_OPS_KERNELS_CPU_IMAGE_ROI_REGION_H_
#define WEFT_OPS_KERNELS_CPU_IMAGE_ROI_REGION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/kernel.h"

namespace weft::cpu {

// The sizes and options of one RoiAlign or MaxRoiPool node.
struct RoiPlan {
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t rois = 0;
  int64_t pooled_height = 0;
  int64_t pooled_width = 0;
  double scale = 1;
  int64_t sampling_ratio = 0;
  bool half_pixel = true;
  bool max = false;
  int threads = 1;
  std::string name;
  std::string op;

  int64_t plane() const { return height * width; }
  int64_t pooled() const { return pooled_height * pooled_width; }
};

// From the attributes of RoiAlign or MaxRoiPool, and the shapes of X and Y.
inline RoiPlan MakeRoiPlan(const PrepareContext& context, const Shape& x, const Shape& y) {
  const Attributes& attributes = context.attributes();
  RoiPlan plan;
  plan.batch = x.dim(0);
  plan.channels = x.dim(1);
  plan.height = x.dim(2);
  plan.width = x.dim(3);
  plan.rois = y.dim(0);
  plan.pooled_height = y.dim(2);
  plan.pooled_width = y.dim(3);
  plan.scale = attributes.Float("spatial_scale", 1.0f);
  plan.sampling_ratio = attributes.Int("sampling_ratio", 0);
  plan.half_pixel =
      attributes.String("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  plan.max = attributes.String("mode", "avg") == "max";
  plan.threads = context.threads();
  plan.name = context.node().name;
  plan.op = context.node().op;
  return plan;
}

// Where the samples of one region lie.
struct AlignedRegion {
  double start[2];  // of the region: y, x
  double bin[2];    // size of an output element
  int64_t grid[2];  // samples along it
  bool fixed[2];    // so small that it counts as one pixel

  // Of a sample of an output element, along an axis.
  double Position(int axis, int64_t output, int64_t sample) const {
    return start[axis] + Bins(axis, output, sample) * bin[axis];
  }
  // How many bins that is from the start.
  double Bins(int axis, int64_t output, int64_t sample) const {
    return static_cast<double>(output) +
           (static_cast<double>(sample) + 0.5) / static_cast<double>(grid[axis]);
  }
};

inline constexpr int64_t kMaxSamples = 1 << 14;  // along one axis of one output element

template <typename T>
absl::StatusOr<AlignedRegion> AlignRegion(const RoiPlan& plan, const T* roi, int64_t index) {
  const double offset = plan.half_pixel ? 0.5 : 0.0;
  const int64_t pooled[] = {plan.pooled_height, plan.pooled_width};
  AlignedRegion region;
  for (int axis = 0; axis < 2; ++axis) {
    const int at = 1 - axis;  // rois hold x1, y1, x2, y2
    const double start = static_cast<double>(roi[at]) * plan.scale - offset;
    double extent = static_cast<double>(roi[at + 2]) * plan.scale - offset - start;
    region.fixed[axis] = !plan.half_pixel && extent <= 1.0;
    if (region.fixed[axis]) extent = 1;
    region.start[axis] = start;
    region.bin[axis] = extent / static_cast<double>(pooled[axis]);
    const double grid = plan.sampling_ratio > 0 ? static_cast<double>(plan.sampling_ratio)
                                                : std::ceil(region.bin[axis]);
    if (!(std::abs(start) < 1e15) || !(grid <= static_cast<double>(kMaxSamples))) {
      return absl::InvalidArgumentError(absl::StrCat("node '", plan.name, "' (", plan.op,
                                                     "): rois[", index, "] spans ", extent,
                                                     " pixels from ", start, " on"));
    }
    region.grid[axis] = std::max<int64_t>(static_cast<int64_t>(grid), 0);
  }
  return region;
}

// Along one axis: the two elements beside `position` and the share of the second; false: outside.
struct Neighbours {
  int64_t low = 0;
  int64_t high = 0;
  double share = 0;
  double slope = 0;  // of the share, by the position
};
inline bool Locate(double position, int64_t size, Neighbours& found) {
  if (position < -1.0 || position > static_cast<double>(size)) return false;
  const double inside = std::max(position, 0.0);
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

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_IMAGE_ROI_REGION_H_
