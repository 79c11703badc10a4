// FakeQuantizeWeight, FakeQuantize and FakeQuantizeGrad, by their definitions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

DType CodesOfCall(const ReferenceCall& call) {
  return static_cast<DType>(call.attributes().Int("to", 0));
}

// A multiple of the step at x's binade, at most 448: the nearest float8e4m3fn.
double NearestFloat8(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent - 4, -9));
  return std::clamp(std::nearbyint(x / step) * step, -448.0, 448.0);
}

double Rounded(DType codes, double x) {
  return codes == DType::kFloat8E4M3Fn ? NearestFloat8(x) : std::nearbyint(x);
}

absl::Status FakeQuantizeWeight(ReferenceCall& call) {
  const ReferenceOperand& w = call.input(0);
  const DType codes = CodesOfCall(call);
  const double limit = codes == DType::kInt8 ? 127 : codes == DType::kInt4 ? 7 : 448;
  const bool has_axis = call.attributes().Has("axis");
  const int rank = w.shape.rank();
  const int64_t axis = call.attributes().Int("axis", 0);
  const int at = static_cast<int>(axis < 0 ? axis + rank : axis);
  const int64_t block = call.attributes().Int("block_size", 0);
  const int64_t size = has_axis ? w.shape.dim(at) : 1;
  const int64_t inner = has_axis ? w.shape.ProductOf(at + 1, rank) : w.size();
  const int64_t blocks = block > 0 ? (size + block - 1) / block : size;
  // The scale of element i.
  const auto place = [&](int64_t i) {
    const int64_t d = i / std::max<int64_t>(inner, 1) % size;
    if (block == 0) return d;
    return (i / inner / size * blocks + d / block) * inner + i % inner;
  };
  std::vector<double> scales(static_cast<size_t>(std::max<int64_t>(w.size(), size)));
  for (int64_t i = 0; i < w.size(); ++i) {
    scales[place(i)] = std::max(scales[place(i)], std::fabs(w[i]) / limit);
  }
  for (double& scale : scales) scale = scale == 0 ? 1 : scale;
  for (int64_t i = 0; i < w.size(); ++i) {
    call.output(0)[i] = Rounded(codes, w[i] / scales[place(i)]) * scales[place(i)];
  }
  if (!call.has_output(1)) return absl::OkStatus();
  for (int64_t i = 0; i < call.output(1).size(); ++i) call.output(1)[i] = scales[i];
  return absl::OkStatus();
}

struct RangeScale {
  double scale = 0;  // 0: there is no range yet
  double zero = 0;
};

RangeScale ScaleOf(const ReferenceOperand& range, DType codes) {
  if (range[2] == 0) return {};
  const double low = std::min(0.0, range[0] / range[2]);
  const double high = std::max(0.0, range[1] / range[2]);
  const bool is_float8 = codes == DType::kFloat8E4M3Fn;
  const double scale = is_float8 ? std::max(-low, high) / 448 : (high - low) / 255;
  if (scale == 0) return {1, 0};
  return {scale, is_float8 ? 0 : std::nearbyint(-low / scale)};
}

absl::Status FakeQuantize(ReferenceCall& call) {
  const DType codes = CodesOfCall(call);
  const RangeScale range = ScaleOf(call.input(1), codes);
  const ReferenceOperand& x = call.input(0);
  for (int64_t i = 0; i < x.size(); ++i) {
    double& y = call.output(0)[i];
    if (range.scale == 0 || !std::isfinite(x[i])) {
      y = x[i];
    } else if (codes == DType::kFloat8E4M3Fn) {
      y = NearestFloat8(x[i] / range.scale) * range.scale;
    } else {
      const double code = std::clamp(std::nearbyint(x[i] / range.scale) + range.zero, 0.0, 255.0);
      y = (code - range.zero) * range.scale;
    }
  }
  if (call.has_output(1)) call.output(1)[0] = range.scale;
  if (call.has_output(2)) call.output(2)[0] = range.zero;
  return absl::OkStatus();
}

absl::Status FakeQuantizeGrad(ReferenceCall& call) {
  const DType codes = CodesOfCall(call);
  const RangeScale range = ScaleOf(call.input(2), codes);
  const ReferenceOperand& x = call.input(1);
  for (int64_t i = 0; i < x.size(); ++i) {
    bool is_inside = true;
    if (!std::isfinite(x[i])) {
      // It stays as it is.
    } else if (range.scale != 0 && codes == DType::kFloat8E4M3Fn) {
      is_inside = std::fabs(x[i] / range.scale) <= 448;
    } else if (range.scale != 0) {
      const double code = std::nearbyint(x[i] / range.scale) + range.zero;
      is_inside = code >= 0 && code <= 255;
    }
    call.output(0)[i] = is_inside ? call.input(0)[i] : 0;
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "FakeQuantizeWeight",
                               ReferenceKernel(FakeQuantizeWeight));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "FakeQuantize", ReferenceKernel(FakeQuantize));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "FakeQuantizeGrad", ReferenceKernel(FakeQuantizeGrad));

}  // namespace
}  // namespace weft::cpu
