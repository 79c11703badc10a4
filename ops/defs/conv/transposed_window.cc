#include "ops/defs/conv/transposed_window.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tensor/shape.h"

namespace weft {
namespace {

// The attribute's values, or `fallback` repeated; of a longer list the last ones when `last`.
absl::StatusOr<std::vector<int64_t>> ReadInts(const Attributes& attributes, const std::string& name,
                                              size_t count, int64_t min_value, int64_t fallback) {
  if (!attributes.Has(name)) return std::vector<int64_t>(count, fallback);
  std::vector<int64_t> values = attributes.Ints(name);
  if (values.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute '", name, "' has ", values.size(), " values, expected ", count));
  }
  for (const int64_t value : values) {
    if (value >= min_value && value <= kMaxDim) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("attribute '", name, "' holds ", value, ", expected ", min_value, " or more"));
  }
  return values;
}

void Distribute(int64_t padding, bool more_at_end, WindowAxis& axis) {
  const int64_t half = padding / 2;
  axis.pad_begin = more_at_end ? half : padding - half;
  axis.pad_end = padding - axis.pad_begin;
}

}  // namespace

absl::StatusOr<std::vector<WindowAxis>> TransposedWindows(const Attributes& attributes,
                                                          const std::vector<int64_t>& kernel,
                                                          const std::vector<int64_t>& image) {
  const size_t rank = image.size();
  Attributes spatial = attributes;
  std::vector<int64_t> shape = attributes.Ints("output_shape");
  // Some exporters write the batch and the channels, too.
  if (shape.size() == rank + 2) shape.erase(shape.begin(), shape.begin() + 2);
  if (shape.empty()) {
    spatial.Erase("output_shape");
  } else {
    spatial.Set("output_shape", shape);
  }
  WEFT_ASSIGN_OR_RETURN(const auto strides, ReadInts(attributes, "strides", rank, 1, 1));
  WEFT_ASSIGN_OR_RETURN(const auto dilations, ReadInts(attributes, "dilations", rank, 1, 1));
  WEFT_ASSIGN_OR_RETURN(const auto pads, ReadInts(attributes, "pads", 2 * rank, 0, 0));
  WEFT_ASSIGN_OR_RETURN(const auto extra, ReadInts(attributes, "output_padding", rank, 0, 0));
  WEFT_ASSIGN_OR_RETURN(const auto wanted, ReadInts(spatial, "output_shape", rank, 0, 0));
  const std::string auto_pad = attributes.String("auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  if (!same && auto_pad != "NOTSET" && auto_pad != "VALID" && !auto_pad.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute 'auto_pad' is '", auto_pad,
                     "', expected NOTSET, SAME_UPPER, SAME_LOWER or VALID"));
  }
  std::vector<WindowAxis> axes;
  for (size_t i = 0; i < rank; ++i) {
    if (kernel[i] < 1 || kernel[i] > kMaxDim || dilations[i] > kMaxDim / kernel[i] ||
        strides[i] > kMaxDim / std::max<int64_t>(image[i], 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("windows of size ", kernel[i], " with dilation ", dilations[i],
                       " and stride ", strides[i], " are not possible"));
    }
    WindowAxis axis;
    axis.kernel = kernel[i];
    axis.stride = strides[i];
    axis.dilation = dilations[i];
    axis.output = image[i];
    const int64_t full =
        strides[i] * (image[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1;
    if (!shape.empty() || same) {
      axis.input = shape.empty() ? image[i] * strides[i] : wanted[i];
      Distribute(std::max<int64_t>(full - axis.input, 0), auto_pad == "SAME_UPPER", axis);
    } else {
      if (auto_pad != "VALID") {
        axis.pad_begin = pads[i];
        axis.pad_end = pads[rank + i];
      }
      axis.input = full - axis.pad_begin - axis.pad_end;
    }
    if (image[i] == 0 && shape.empty()) axis.input = std::max<int64_t>(axis.input, 0);
    if (axis.input < 0 || axis.input > kMaxDim) {
      return absl::InvalidArgumentError(
          absl::StrCat("image axis ", i, " of size ", image[i], " becomes one of ", axis.input));
    }
    axes.push_back(axis);
  }
  return axes;
}

}  // namespace weft
