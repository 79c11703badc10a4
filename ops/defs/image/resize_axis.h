// What Resize means along one axis: sizes, coordinates, and the weights of the elements that each
// output element is made of. Formulas: ONNX, Resize-19.
#ifndef WEFT_OPS_DEFS_IMAGE_RESIZE_AXIS_H_
#define WEFT_OPS_DEFS_IMAGE_RESIZE_AXIS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attribute.h"
#include "graph/op_schema.h"
#include "tensor/shape.h"

namespace weft {

// Resize's attribute mode.
enum class ResizeMode : uint8_t { kNearest, kLinear, kCubic };
// Resize's attribute nearest_mode.
enum class NearestMode : uint8_t {
  kRoundPreferFloor,
  kRoundPreferCeil,
  kFloor,
  kCeil,
  // Not ONNX's: what operator sets below 11 did. Up when the axis shrinks, down otherwise.
  kSimple,
};
// Resize's attribute coordinate_transformation_mode.
enum class CoordinateMode : uint8_t {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfCropAndResize,
  kTfHalfPixelForNearest,  // of operator sets 11 and 12
};
// Resize's attribute keep_aspect_ratio_policy.
enum class AspectPolicy : uint8_t { kStretch, kNotLarger, kNotSmaller };

// The attributes of a Resize node, but for axes. Value type.
struct ResizeSpec {
  ResizeMode mode = ResizeMode::kNearest;
  NearestMode nearest = NearestMode::kRoundPreferFloor;
  CoordinateMode coordinates = CoordinateMode::kHalfPixel;
  AspectPolicy policy = AspectPolicy::kStretch;
  bool antialias = false;
  bool exclude_outside = false;
  double cubic_a = -0.75;
  float extrapolation_value = 0;

  // InvalidArgument naming the attribute and what it may be.
  static absl::StatusOr<ResizeSpec> Create(const Attributes& attributes);
};

// The value of attribute nearest_mode that stands for NearestMode::kSimple.
inline constexpr char kSimpleNearestMode[] = "weft_simple";

// One axis: from `input` to `output` elements. `scale` need not be their quotient.
struct ResizeAxis {
  int64_t input = 0;
  int64_t output = 0;
  double scale = 1;
  double roi_begin = 0;  // of the input, for tf_crop_and_resize
  double roi_end = 1;

  bool IsIdentity() const {
    return input == output && scale == 1 && roi_begin == 0 && roi_end == 1;
  }
};

// The axes of an input of shape `input` from the attribute axes and the values of the other inputs;
// `scales` or `sizes` empty: not given. InvalidArgument when they do not fit.
absl::StatusOr<std::vector<ResizeAxis>> ReadResizeAxes(const Attributes& attributes,
                                                       const Shape& input,
                                                       const std::vector<double>& roi,
                                                       const std::vector<double>& scales,
                                                       const std::vector<int64_t>& sizes);

// The same of a node whose operands roi, scales and sizes have known values; the first of them is
// operand `roi`. InvalidArgument, too, where the taps of an axis would be more than 2^28, as they
// are made ahead. Internal where a value is not known.
absl::StatusOr<std::vector<ResizeAxis>> ReadResizeOperands(const NodeView& node,
                                                           const ResizeSpec& spec,
                                                           const Shape& input, int roi);

// The elements that each output element is the weighted sum of: `taps` for each, indices in range.
struct ResizeTaps {
  int64_t taps = 1;
  std::vector<int64_t> indices;
  std::vector<double> weights;  // nearest: ones
  // tf_crop_and_resize: these outputs are the extrapolation value. Empty: none.
  std::vector<bool> outside;
};
// REQUIRES: axis.input > 0 or axis.output == 0.
ResizeTaps MakeResizeTaps(const ResizeSpec& spec, const ResizeAxis& axis);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_IMAGE_RESIZE_AXIS_H_
