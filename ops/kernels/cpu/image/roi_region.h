// The sizes of RoiAlign and MaxRoiPool, and the regions of RoiAlign.
#ifndef WEFT_OPS_KERNELS_CPU_IMAGE_ROI_REGION_H_
#define WEFT_OPS_KERNELS_CPU_IMAGE_ROI_REGION_H_

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/defs/image/roi_region.h"
#include "ops/defs/image/sampling_attributes.h"
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
  RoiSpec spec;
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
  plan.spec = ReadRoiSpec(attributes, plan.pooled_height, plan.pooled_width);
  plan.max = attributes.String("mode", "avg") == "max";
  plan.threads = context.threads();
  plan.name = context.node().name;
  plan.op = context.node().op;
  return plan;
}

// Region `index`, with corners x1, y1, x2, y2. InvalidArgument where it has no bounds.
template <typename T>
absl::StatusOr<AlignedRegion> AlignRegion(const RoiPlan& plan, const T* roi, int64_t index) {
  AlignedRegion region;
  for (int axis = 0; axis < 2; ++axis) {
    const int at = 1 - axis;
    const double samples = AlignAxis(plan.spec, axis, static_cast<double>(roi[at]),
                                     static_cast<double>(roi[at + 2]), region);
    if (!(std::abs(region.start[axis]) < kMaxRoiStart) ||
        !(samples <= static_cast<double>(kMaxRoiSamples))) {
      return absl::InvalidArgumentError(
          absl::StrCat("node '", plan.name, "' (", plan.op, "): rois[", index, "] spans ",
                       region.bin[axis] * static_cast<double>(plan.spec.pooled[axis]),
                       " pixels from ", region.start[axis], " on"));
    }
  }
  return region;
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_IMAGE_ROI_REGION_H_
