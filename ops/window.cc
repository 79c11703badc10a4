#include "ops/window.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The attribute's values, or `fallback` repeated. InvalidArgument unless there are `count` of them
// in [min_value, kMaxDim].
absl::StatusOr<std::vector<int64_t>> ReadInts(const Attributes& attributes, const std::string& name,
                                              size_t count, int64_t min_value, int64_t fallback) {
  if (!attributes.Has(name)) return std::vector<int64_t>(count, fallback);
  const std::vector<int64_t> values = attributes.Ints(name);
  if (values.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute '", name, "' has ", values.size(), " values, expected ", count));
  }
  for (const int64_t value : values) {
    if (value < min_value || value > kMaxDim) {
      return absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' holds ", value,
                                                     ", expected ", min_value, " or more"));
    }
  }
  return values;
}

}  // namespace

absl::StatusOr<WindowSpec> WindowSpec::Create(const Attributes& attributes,
                                              std::vector<int64_t> kernel) {
  WindowSpec spec;
  const size_t rank = kernel.size();
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> strides,
                        ReadInts(attributes, "strides", rank, 1, 1));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> dilations,
                        ReadInts(attributes, "dilations", rank, 1, 1));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> pads,
                        ReadInts(attributes, "pads", 2 * rank, 0, 0));
  const std::string auto_pad = attributes.String("auto_pad", "NOTSET");
  if (auto_pad == "SAME_UPPER") {
    spec.auto_pad_ = AutoPad::kSameUpper;
  } else if (auto_pad == "SAME_LOWER") {
    spec.auto_pad_ = AutoPad::kSameLower;
  } else if (auto_pad == "VALID") {
    spec.auto_pad_ = AutoPad::kValid;
  } else if (auto_pad != "NOTSET" && !auto_pad.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute 'auto_pad' is '", auto_pad,
                     "', expected NOTSET, SAME_UPPER, SAME_LOWER or VALID"));
  }
  spec.ceil_mode_ = attributes.Int("ceil_mode", 0) != 0;
  for (size_t i = 0; i < rank; ++i) {
    if (kernel[i] < 1 || kernel[i] > kMaxDim || dilations[i] > kMaxDim / kernel[i]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a window of size ", kernel[i], " with dilation ", dilations[i], " is not possible"));
    }
    WindowAxis axis;
    axis.kernel = kernel[i];
    axis.stride = strides[i];
    axis.dilation = dilations[i];
    if (spec.auto_pad_ == AutoPad::kNotSet) {
      axis.pad_begin = pads[i];
      axis.pad_end = pads[rank + i];
    }
    spec.axes_.push_back(axis);
  }
  return spec;
}

absl::StatusOr<Dim> WindowSpec::OutputDim(int axis, const Dim& input) const {
  if (input.is_known()) {
    WEFT_ASSIGN_OR_RETURN(const WindowAxis resolved, Resolve(axis, input.size()));
    return Dim(resolved.output);
  }
  const WindowAxis& own = axes_[axis];
  const bool same = auto_pad_ == AutoPad::kSameUpper || auto_pad_ == AutoPad::kSameLower;
  const bool covers = same || own.pad_begin + own.pad_end == (own.kernel - 1) * own.dilation;
  return own.stride == 1 && covers ? input : Dim();
}

absl::StatusOr<WindowAxis> WindowSpec::Resolve(int axis, int64_t input) const {
  WindowAxis resolved = axes_[axis];
  resolved.input = input;
  const int64_t extent = (resolved.kernel - 1) * resolved.dilation + 1;
  const int64_t stride = resolved.stride;
  if (auto_pad_ == AutoPad::kSameUpper || auto_pad_ == AutoPad::kSameLower) {
    resolved.output = (input + stride - 1) / stride;
    const int64_t pad = std::max<int64_t>((resolved.output - 1) * stride + extent - input, 0);
    resolved.pad_begin = auto_pad_ == AutoPad::kSameUpper ? pad / 2 : pad - pad / 2;
    resolved.pad_end = pad - resolved.pad_begin;
    return resolved;
  }
  const int64_t slack = input + resolved.pad_begin + resolved.pad_end - extent;
  if (slack < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a window that spans ", extent, " elements does not fit image axis ", axis, " of size ",
        input, " with padding ", resolved.pad_begin, " and ", resolved.pad_end));
  }
  resolved.output = slack / stride + 1;
  if (ceil_mode_ && slack % stride != 0 &&
      resolved.Start(resolved.output) < input) {  // no window starts in the padding behind
    ++resolved.output;
  }
  return resolved;
}

absl::StatusOr<std::vector<WindowAxis>> WindowSpec::ResolveAll(const Shape& image) const {
  if (image.rank() != rank() + 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("an image of shape ", image.ToString(), " has not ", rank(), " image axes"));
  }
  std::vector<WindowAxis> axes;
  for (int i = 0; i < rank(); ++i) {
    WEFT_ASSIGN_OR_RETURN(axes.emplace_back(), Resolve(i, image.dim(i + 2)));
  }
  return axes;
}

}  // namespace weft
