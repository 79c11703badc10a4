// The attributes of GridSample, RoiAlign and MaxRoiPool. For factories; shape inference has
// checked the values.
#ifndef WEFT_OPS_DEFS_IMAGE_SAMPLING_ATTRIBUTES_H_
#define WEFT_OPS_DEFS_IMAGE_SAMPLING_ATTRIBUTES_H_

#include <cstdint>
#include <string>

#include "graph/attribute.h"
#include "ops/defs/image/grid_axis.h"
#include "ops/defs/image/roi_region.h"

namespace weft {

// Mode, padding and alignment of a GridSample node; the size of the axis is not set.
inline GridAxis ReadGridOptions(const Attributes& attributes) {
  const std::string mode = attributes.String("mode", "linear");
  const std::string padding = attributes.String("padding_mode", "zeros");
  GridAxis axis;
  axis.mode = mode == "nearest" ? SampleMode::kNearest
              : mode == "cubic" ? SampleMode::kCubic
                                : SampleMode::kLinear;
  axis.padding = padding == "border"       ? PaddingMode::kBorder
                 : padding == "reflection" ? PaddingMode::kReflection
                                           : PaddingMode::kZeros;
  axis.align_corners = attributes.Int("align_corners", 0) != 0;
  return axis;
}

// Of a RoiAlign or MaxRoiPool node whose results have pooled_height x pooled_width elements.
inline RoiSpec ReadRoiSpec(const Attributes& attributes, int64_t pooled_height,
                           int64_t pooled_width) {
  RoiSpec spec;
  spec.pooled[0] = pooled_height;
  spec.pooled[1] = pooled_width;
  spec.scale = attributes.Float("spatial_scale", 1.0f);
  spec.sampling_ratio = attributes.Int("sampling_ratio", 0);
  spec.half_pixel =
      attributes.String("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  return spec;
}

}  // namespace weft

#endif  // WEFT_OPS_DEFS_IMAGE_SAMPLING_ATTRIBUTES_H_
