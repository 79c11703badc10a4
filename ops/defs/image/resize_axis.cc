#include "ops/defs/image/resize_axis.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "platform/status_macros.h"
#include "tensor/tensor.h"

namespace weft {
namespace {

template <typename Enum>
using Names = std::vector<std::pair<const char*, Enum>>;

template <typename Enum>
absl::StatusOr<Enum> ReadEnum(const Attributes& attributes, const char* name, const char* fallback,
                              const Names<Enum>& names) {
  const std::string value = attributes.String(name, fallback);
  std::string expected;
  for (const auto& [text, choice] : names) {
    if (value == text) return choice;
    absl::StrAppend(&expected, expected.empty() ? "" : ", ", text);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("attribute '", name, "' is '", value, "', expected one of ", expected));
}

}  // namespace

absl::StatusOr<ResizeSpec> ResizeSpec::Create(const Attributes& attributes) {
  ResizeSpec spec;
  WEFT_ASSIGN_OR_RETURN(spec.mode, ReadEnum<ResizeMode>(attributes, "mode", "nearest",
                                                        {{"nearest", ResizeMode::kNearest},
                                                         {"linear", ResizeMode::kLinear},
                                                         {"cubic", ResizeMode::kCubic}}));
  WEFT_ASSIGN_OR_RETURN(
      spec.nearest, ReadEnum<NearestMode>(attributes, "nearest_mode", "round_prefer_floor",
                                          {{"round_prefer_floor", NearestMode::kRoundPreferFloor},
                                           {"round_prefer_ceil", NearestMode::kRoundPreferCeil},
                                           {"floor", NearestMode::kFloor},
                                           {"ceil", NearestMode::kCeil},
                                           {kSimpleNearestMode, NearestMode::kSimple}}));
  WEFT_ASSIGN_OR_RETURN(
      spec.coordinates,
      ReadEnum<CoordinateMode>(attributes, "coordinate_transformation_mode", "half_pixel",
                               {{"half_pixel", CoordinateMode::kHalfPixel},
                                {"half_pixel_symmetric", CoordinateMode::kHalfPixelSymmetric},
                                {"pytorch_half_pixel", CoordinateMode::kPytorchHalfPixel},
                                {"align_corners", CoordinateMode::kAlignCorners},
                                {"asymmetric", CoordinateMode::kAsymmetric},
                                {"tf_crop_and_resize", CoordinateMode::kTfCropAndResize},
                                {"tf_half_pixel_for_nn", CoordinateMode::kTfHalfPixelForNearest}}));
  WEFT_ASSIGN_OR_RETURN(spec.policy,
                        ReadEnum<AspectPolicy>(attributes, "keep_aspect_ratio_policy", "stretch",
                                               {{"stretch", AspectPolicy::kStretch},
                                                {"not_larger", AspectPolicy::kNotLarger},
                                                {"not_smaller", AspectPolicy::kNotSmaller}}));
  spec.antialias = attributes.Int("antialias", 0) != 0;
  spec.exclude_outside = attributes.Int("exclude_outside", 0) != 0;
  spec.cubic_a = static_cast<double>(attributes.Float("cubic_coeff_a", -0.75f));
  spec.extrapolation_value = attributes.Float("extrapolation_value", 0.0f);
  return spec;
}

namespace {

absl::StatusOr<std::vector<int>> ResizedAxes(const Attributes& attributes, int rank) {
  std::vector<int> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (!attributes.Has("axes")) return axes;
  axes.clear();
  for (const int64_t axis : attributes.Ints("axes")) {
    WEFT_ASSIGN_OR_RETURN(const int normalized, NormalizeAxis(axis, rank));
    if (std::find(axes.begin(), axes.end(), normalized) != axes.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("attribute 'axes' names axis ", normalized, " more than once"));
    }
    axes.push_back(normalized);
  }
  return axes;
}

absl::Status SetScales(const std::vector<int>& axes, const std::vector<double>& scales,
                       std::vector<ResizeAxis>& result) {
  for (size_t i = 0; i < axes.size(); ++i) {
    ResizeAxis& axis = result[axes[i]];
    axis.scale = scales[i];
    // In float32, as ONNX's own shape inference does.
    const float size = static_cast<float>(axis.input) * static_cast<float>(scales[i]);
    if (!(scales[i] > 0) || !(size <= static_cast<float>(kMaxDim))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input 'scales' holds ", scales[i], " for axis ", axes[i], " of size ", axis.input));
    }
    axis.output = static_cast<int64_t>(std::floor(size));
  }
  return absl::OkStatus();
}

absl::Status SetSizes(const std::vector<int>& axes, const std::vector<int64_t>& sizes,
                      AspectPolicy policy, std::vector<ResizeAxis>& result) {
  double common = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    ResizeAxis& axis = result[axes[i]];
    if (sizes[i] < 0 || sizes[i] > kMaxDim || (sizes[i] > 0 && axis.input == 0)) {
      return absl::InvalidArgumentError(absl::StrCat("input 'sizes' holds ", sizes[i], " for axis ",
                                                     axes[i], " of size ", axis.input));
    }
    axis.output = sizes[i];
    axis.scale =
        axis.input == 0 ? 1.0 : static_cast<double>(sizes[i]) / static_cast<double>(axis.input);
    const bool better =
        policy == AspectPolicy::kNotLarger ? axis.scale < common : axis.scale > common;
    if (i == 0 || better) common = axis.scale;
  }
  if (policy == AspectPolicy::kStretch) return absl::OkStatus();
  for (const int i : axes) {
    const double size = common * static_cast<double>(result[i].input);
    if (!(size <= static_cast<double>(kMaxDim))) {
      return absl::InvalidArgumentError(
          absl::StrCat("axis ", i, " of size ", result[i].input, " cannot grow by ", common));
    }
    result[i].scale = common;
    result[i].output = static_cast<int64_t>(std::floor(size + 0.5));
  }
  return absl::OkStatus();
}

// Taps of an axis: they are made ahead.
constexpr double kMaxTaps = 1 << 28;

// An operand's values; empty where it is left out.
absl::StatusOr<std::vector<double>> NumbersOf(const NodeView& node, int i) {
  if (!node.HasInput(i) || node.InputShape(i).num_elements() == 0) return std::vector<double>();
  const Tensor* value = node.InputValue(i);
  if (value == nullptr) {
    return absl::InternalError("the values of roi and scales must be known");
  }
  return ToDoubles(*value);
}

}  // namespace

absl::StatusOr<std::vector<ResizeAxis>> ReadResizeAxes(const Attributes& attributes,
                                                       const Shape& input,
                                                       const std::vector<double>& roi,
                                                       const std::vector<double>& scales,
                                                       const std::vector<int64_t>& sizes) {
  WEFT_ASSIGN_OR_RETURN(const ResizeSpec spec, ResizeSpec::Create(attributes));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int> axes, ResizedAxes(attributes, input.rank()));
  std::vector<ResizeAxis> result(input.rank());
  for (int i = 0; i < input.rank(); ++i) result[i].input = result[i].output = input.dim(i);
  if (scales.empty() == sizes.empty() && !axes.empty()) {
    return absl::InvalidArgumentError("one of the inputs 'scales' and 'sizes' must be given");
  }
  const size_t given = scales.empty() ? sizes.size() : scales.size();
  if (given != axes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(scales.empty() ? "'sizes'" : "'scales'", " has ",
                                                   given, " values for ", axes.size(), " axes"));
  }
  if (spec.coordinates == CoordinateMode::kTfCropAndResize) {
    if (roi.size() != 2 * axes.size()) {
      return absl::InvalidArgumentError(absl::StrCat("input 'roi' has ", roi.size(),
                                                     " values, expected two for each of ",
                                                     axes.size(), " axes"));
    }
    for (size_t i = 0; i < axes.size(); ++i) {
      result[axes[i]].roi_begin = roi[i];
      result[axes[i]].roi_end = roi[axes.size() + i];
    }
  }
  if (!scales.empty()) {
    WEFT_RETURN_IF_ERROR(SetScales(axes, scales, result));
  } else {
    WEFT_RETURN_IF_ERROR(SetSizes(axes, sizes, spec.policy, result));
  }
  return result;
}

absl::StatusOr<std::vector<ResizeAxis>> ReadResizeOperands(const NodeView& node,
                                                           const ResizeSpec& spec,
                                                           const Shape& input, int roi) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> region, NumbersOf(node, roi));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> scales, NumbersOf(node, roi + 1));
  std::vector<int64_t> sizes;
  if (node.HasInput(roi + 2)) {
    WEFT_ASSIGN_OR_RETURN(sizes, RequiredInts(node, roi + 2));
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<ResizeAxis> axes,
                        ReadResizeAxes(node.attributes(), input, region, scales, sizes));
  for (const ResizeAxis& axis : axes) {
    const double reach = spec.antialias && axis.scale < 1 ? 4 / axis.scale : 4;
    if (static_cast<double>(axis.output) * reach > kMaxTaps) {
      return absl::InvalidArgumentError(
          absl::StrCat("an axis of ", axis.input, " elements cannot become one of ", axis.output));
    }
  }
  return axes;
}

namespace {

// The position in the input of output element `x`.
double OriginalCoordinate(CoordinateMode mode, const ResizeAxis& axis, double x) {
  const double input = static_cast<double>(axis.input);
  const double resized = axis.scale * input;  // may have a fraction
  switch (mode) {
    case CoordinateMode::kAlignCorners:
      return resized == 1 ? 0.0 : x * (input - 1) / (resized - 1);
    case CoordinateMode::kAsymmetric:
      return x / axis.scale;
    case CoordinateMode::kTfHalfPixelForNearest:
      return (x + 0.5) / axis.scale;
    case CoordinateMode::kTfCropAndResize: {
      const double extent = axis.roi_end - axis.roi_begin;
      const double within =
          resized == 1 ? extent * (input - 1) / 2 : x * extent * (input - 1) / (resized - 1);
      return within + axis.roi_begin * (input - 1);
    }
    case CoordinateMode::kPytorchHalfPixel:
      if (axis.output == 1) return 0;
      break;
    case CoordinateMode::kHalfPixelSymmetric: {
      const double adjustment = static_cast<double>(axis.output) / resized;
      const double offset = input / 2 * (1 - adjustment);
      return offset + (x + 0.5) / axis.scale - 0.5;
    }
    case CoordinateMode::kHalfPixel:
      break;
  }
  return (x + 0.5) / axis.scale - 0.5;
}

// Scales are float32, so that coordinates that mean a whole or half number miss it by a little.
double SnapToHalves(double x) {
  const double halves = std::round(2 * x) / 2;
  return std::abs(x - halves) <= 4e-7 * (1 + std::abs(x)) ? halves : x;
}

int64_t NearestIndex(NearestMode mode, double scale, double coordinate) {
  const double x = SnapToHalves(coordinate);
  const double below = std::floor(x);
  const double fraction = x - below;
  bool up = false;
  switch (mode) {
    case NearestMode::kRoundPreferFloor:
      up = fraction > 0.5;
      break;
    case NearestMode::kRoundPreferCeil:
      up = fraction >= 0.5;
      break;
    case NearestMode::kFloor:
      break;
    case NearestMode::kCeil:
      up = fraction > 0;
      break;
    case NearestMode::kSimple:
      up = scale < 1 && fraction > 0;
      break;
  }
  return static_cast<int64_t>(below) + (up ? 1 : 0);
}

double LinearKernel(double distance) { return std::max(1 - std::abs(distance), 0.0); }

// R. Keys, Cubic Convolution Interpolation for Digital Image Processing (1981), equation 4.
double CubicKernel(double a, double distance) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// The weights of the elements around coordinate x; they need not be in range yet.
void WeighNeighbours(const ResizeSpec& spec, const ResizeAxis& axis, int64_t reach, double x,
                     int64_t* indices, double* weights) {
  const bool stretched = spec.antialias && axis.scale < 1;
  const double shrink = stretched ? axis.scale : 1.0;
  const int64_t first = static_cast<int64_t>(std::floor(x)) - reach + 1;
  double sum = 0;
  for (int64_t k = 0; k < 2 * reach; ++k) {
    indices[k] = first + k;
    const double distance = (static_cast<double>(first + k) - x) * shrink;
    weights[k] = spec.mode == ResizeMode::kLinear ? LinearKernel(distance)
                                                  : CubicKernel(spec.cubic_a, distance);
    const bool inside = indices[k] >= 0 && indices[k] < axis.input;
    if (spec.exclude_outside && !inside) weights[k] = 0;
    sum += weights[k];
  }
  if ((stretched || spec.exclude_outside) && sum != 0) {
    for (int64_t k = 0; k < 2 * reach; ++k) weights[k] /= sum;
  }
  for (int64_t k = 0; k < 2 * reach; ++k) {
    indices[k] = std::clamp<int64_t>(indices[k], 0, axis.input - 1);
  }
}

}  // namespace

ResizeTaps MakeResizeTaps(const ResizeSpec& spec, const ResizeAxis& axis) {
  ResizeTaps taps;
  int64_t reach = spec.mode == ResizeMode::kLinear ? 1 : 2;
  if (spec.antialias && axis.scale < 1) {
    // A filter that is wider than the image reads nothing new.
    const double wide = std::ceil(static_cast<double>(reach) / axis.scale);
    reach = static_cast<int64_t>(std::min(wide, static_cast<double>(kMaxDim)));
    reach = std::max<int64_t>(1, std::min<int64_t>(reach, 4 * axis.input + 4));
  }
  taps.taps = spec.mode == ResizeMode::kNearest ? 1 : 2 * reach;
  taps.indices.resize(axis.output * taps.taps);
  taps.weights.assign(axis.output * taps.taps, 1.0);
  for (int64_t i = 0; i < axis.output; ++i) {
    double x = OriginalCoordinate(spec.coordinates, axis, static_cast<double>(i));
    const double last = static_cast<double>(axis.input - 1);
    if (spec.coordinates == CoordinateMode::kTfCropAndResize && !(x >= 0 && x <= last)) {
      if (taps.outside.empty()) taps.outside.resize(axis.output, false);
      taps.outside[i] = true;
      x = 0;
    }
    // Far outside only the nearest element counts; keeps whole numbers in range.
    x = std::clamp(x, -static_cast<double>(axis.input) - 4, 2 * last + 8);
    int64_t* const indices = taps.indices.data() + i * taps.taps;
    if (spec.mode == ResizeMode::kNearest) {
      indices[0] =
          std::clamp<int64_t>(NearestIndex(spec.nearest, axis.scale, x), 0, axis.input - 1);
    } else {
      WeighNeighbours(spec, axis, reach, x, indices, taps.weights.data() + i * taps.taps);
    }
  }
  return taps;
}

}  // namespace weft
