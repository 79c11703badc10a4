#include "ops/kernels/cuda/conv/conv_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

constexpr int64_t kMaxAxis = std::numeric_limits<int32_t>::max();

bool IsConvType(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

// The largest element number that a window reaches, padding included.
int64_t Reach(const WindowAxis& axis) {
  return axis.input + axis.pad_begin + axis.output * axis.stride + axis.kernel * axis.dilation;
}

// The shapes follow from each other; our own gradient ops can come from a file.
bool ShapesFit(const Shape& large, const Shape& weights, const Shape& small, int64_t groups,
               const std::vector<WindowAxis>& axes) {
  const int rank = static_cast<int>(axes.size()) + 2;
  if (large.rank() != rank || weights.rank() != rank || small.rank() != rank) return false;
  if (groups < 1 || weights.dim(0) % groups != 0) return false;
  bool fits = large.dim(0) == small.dim(0) && large.dim(1) == groups * weights.dim(1) &&
              small.dim(1) == weights.dim(0);
  for (int i = 2; i < rank; ++i) {
    const WindowAxis& axis = axes[i - 2];
    fits = fits && large.dim(i) == axis.input && small.dim(i) == axis.output &&
           weights.dim(i) == axis.kernel;
  }
  return fits;
}

}  // namespace

bool ConvPlan::is_plain() const {
  bool plain = true;
  for (int i = 0; i < kImageAxes; ++i) {
    plain = plain && window.kernel[i] == 1 && window.stride[i] == 1 && window.pad[i] == 0 &&
            window.large[i] == window.small[i];
  }
  return plain;
}

absl::StatusOr<ConvWindow> ConvWindowOf(const PrepareContext& context,
                                        const std::vector<WindowAxis>& axes) {
  ConvWindow window;
  if (axes.size() > kImageAxes) {
    return context.Unimplemented(
        absl::StrCat("convolutions on GPUs have at most 3 image axes, this one has ", axes.size()));
  }
  const int missing = kImageAxes - static_cast<int>(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    const WindowAxis& axis = axes[i];
    if (Reach(axis) > kMaxAxis) {
      return context.Unimplemented("convolutions on GPUs have image axes below 2^31");
    }
    const int to = missing + static_cast<int>(i);
    window.large[to] = static_cast<int32_t>(axis.input);
    window.small[to] = static_cast<int32_t>(axis.output);
    window.kernel[to] = static_cast<int32_t>(axis.kernel);
    window.stride[to] = static_cast<int32_t>(axis.stride);
    window.dilation[to] = static_cast<int32_t>(axis.dilation);
    window.pad[to] = static_cast<int32_t>(axis.pad_begin);
    const int64_t divisor = std::gcd(axis.stride, axis.dilation);
    window.tap_step[to] = static_cast<int32_t>(axis.stride / divisor);
    window.position_step[to] = static_cast<int32_t>(axis.dilation / divisor);
  }
  const auto fits = [](const int32_t(&sizes)[kImageAxes]) {
    return int64_t{sizes[0]} * sizes[1] <= kMaxAxis &&
           int64_t{sizes[0]} * sizes[1] * sizes[2] <= kMaxAxis;
  };
  if (fits(window.large) && fits(window.small) && fits(window.kernel)) return window;
  return context.Unimplemented("convolutions on GPUs have images of less than 2^31 elements");
}

absl::StatusOr<ConvPlan> PlanConv(const PrepareContext& context, const Shape& large,
                                  const Shape& weights, const Shape& small,
                                  const std::vector<WindowAxis>& axes) {
  ConvPlan plan;
  plan.dtype = context.InputDType(0);
  if (!IsConvType(plan.dtype)) {
    return context.Unimplemented(
        absl::StrCat("no kernel for ", std::string(DTypeName(plan.dtype))));
  }
  plan.groups = context.attributes().Int("group", 1);
  if (!ShapesFit(large, weights, small, plan.groups, axes)) {
    return context.InvalidArgument(
        absl::StrCat("a convolution between images ", large.ToString(), " and ", small.ToString(),
                     " cannot have weights ", weights.ToString(), " in ", plan.groups, " groups"));
  }
  WEFT_ASSIGN_OR_RETURN(plan.window, ConvWindowOf(context, axes));
  plan.samples = large.dim(0);
  plan.large_channels = weights.dim(1);
  plan.small_channels = weights.dim(0) / plan.groups;
  return plan;
}

std::vector<ConvPiece> CutPieces(int64_t samples, int64_t extent, int64_t bytes, int64_t limit,
                                 int64_t max_samples) {
  const int64_t of_sample = std::max<int64_t>(extent * bytes, 1);
  const int64_t whole = std::min({limit / of_sample, samples, max_samples});
  std::vector<ConvPiece> pieces;
  if (whole > 0) {
    for (int64_t first = 0; first < samples; first += whole) {
      pieces.push_back({first, std::min(whole, samples - first), 0, extent});
    }
    return pieces;
  }
  const int64_t part = std::clamp<int64_t>(limit / std::max<int64_t>(bytes, 1), 1, extent);
  for (int64_t sample = 0; sample < samples; ++sample) {
    for (int64_t first = 0; first < extent; first += part) {
      pieces.push_back({sample, 1, first, std::min(part, extent - first)});
    }
  }
  return pieces;
}

}  // namespace weft::cuda
