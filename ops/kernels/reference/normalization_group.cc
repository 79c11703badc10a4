// Normalizations over images and rows, and DFT, from their definitions.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

void NormalizeGroups(ReferenceCall& call, int64_t groups) {
  const ReferenceOperand& x = call.input(0);
  if (x.size() == 0) return;
  const double epsilon = call.attributes().Float("epsilon", 1e-5f);
  const int64_t channels = x.shape.dim(1);
  const int64_t plane = x.shape.ProductOf(2, x.shape.rank());
  const int64_t count = channels / groups * plane;
  for (int64_t first = 0; first < x.size(); first += count) {
    double mean = 0;
    double variance = 0;
    for (int64_t i = first; i < first + count; ++i) mean += x[i] / static_cast<double>(count);
    for (int64_t i = first; i < first + count; ++i) {
      variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(count);
    }
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t channel = i / plane % channels;
      const int64_t at = channel * call.input(1).size() / channels;
      call.output(0)[i] =
          (x[i] - mean) / std::sqrt(variance + epsilon) * call.input(1)[at] + call.input(2)[at];
    }
  }
}

absl::Status InstanceNormalization(ReferenceCall& call) {
  NormalizeGroups(call, call.input(0).shape.dim(1));
  return absl::OkStatus();
}

absl::Status GroupNormalization(ReferenceCall& call) {
  NormalizeGroups(call, call.attributes().Int("num_groups", 1));
  return absl::OkStatus();
}

absl::Status RmsNormalization(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(call.attributes().Int("axis", -1), x.shape.rank()));
  const double epsilon = call.attributes().Float("epsilon", 1e-5f);
  const int64_t columns = x.shape.ProductOf(axis, x.shape.rank());
  for (int64_t i = 0; i < x.size(); ++i) {
    double mean = 0;
    const int64_t first = i / columns * columns;
    for (int64_t k = first; k < first + columns; ++k) {
      mean += x[k] * x[k] / static_cast<double>(columns);
    }
    call.output(0)[i] = x[i] / std::sqrt(mean + epsilon) *
                        call.input(1)[BroadcastOffset(call.input(1).shape, x.shape, i)];
  }
  return absl::OkStatus();
}

absl::Status RmsNormalizationGrad(ReferenceCall& call) {
  const ReferenceOperand& dy = call.input(0);
  const ReferenceOperand& x = call.input(1);
  const ReferenceOperand& scale = call.input(2);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(call.attributes().Int("axis", -1), x.shape.rank()));
  const double epsilon = call.attributes().Float("epsilon", 1e-5f);
  const int64_t columns = x.shape.ProductOf(axis, x.shape.rank());
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t first = i / columns * columns;
    double square = 0;
    double along = 0;
    for (int64_t k = 0; k < columns; ++k) {
      square += x[first + k] * x[first + k];
      along += dy[first + k] * scale[k] * x[first + k];
    }
    const double deviation = std::sqrt(square / static_cast<double>(columns) + epsilon);
    const double share = x[i] * along / (static_cast<double>(columns) * deviation * deviation);
    if (call.has_output(0)) call.output(0)[i] = (dy[i] * scale[i - first] - share) / deviation;
    if (call.has_output(1)) call.output(1)[i - first] += dy[i] * x[i] / deviation;
  }
  return absl::OkStatus();
}

absl::Status LpNormalization(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(call.attributes().Int("axis", -1), x.shape.rank()));
  const double p = static_cast<double>(call.attributes().Int("p", 2));
  const int64_t inner = x.shape.ProductOf(axis + 1, x.shape.rank());
  const int64_t size = x.shape.dim(axis);
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t first = i / (size * inner) * size * inner + i % inner;
    double sum = 0;
    for (int64_t k = 0; k < size; ++k) sum += std::pow(std::abs(x[first + k * inner]), p);
    call.output(0)[i] = sum == 0 ? 0 : x[i] / std::pow(sum, 1 / p);
  }
  return absl::OkStatus();
}

absl::Status Lrn(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  const double size = static_cast<double>(call.attributes().Int("size", 1));
  const double alpha = call.attributes().Float("alpha", 0.0001f);
  const double beta = call.attributes().Float("beta", 0.75f);
  const double bias = call.attributes().Float("bias", 1.0f);
  const int64_t channels = x.shape.dim(1);
  const int64_t plane = x.shape.ProductOf(2, x.shape.rank());
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t channel = i / plane % channels;
    double sum = 0;
    for (int64_t k = 0; k < channels; ++k) {
      const double away = static_cast<double>(k - channel);
      if (away < -std::floor((size - 1) / 2) || away > std::ceil((size - 1) / 2)) continue;
      const double value = x[i + (k - channel) * plane];
      sum += value * value;
    }
    call.output(0)[i] = x[i] / std::pow(bias + alpha / size * sum, beta);
  }
  return absl::OkStatus();
}

// The sum of the definition for every output.
absl::Status Dft(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& y = call.output(0);
  const int64_t given = call.has_input(2) ? static_cast<int64_t>(call.input(2)[0]) : -2;
  WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, x.shape.rank()));
  const bool inverse = call.attributes().Int("inverse", 0) != 0;
  const bool mirrored = inverse && call.attributes().Int("onesided", 0) != 0;
  const int64_t outer = x.shape.ProductOf(0, axis);
  const int64_t inner = x.shape.ProductOf(axis + 1, x.shape.rank() - 1);
  const int64_t size = x.shape.dim(axis);
  const int64_t parts = x.shape.dim(x.shape.rank() - 1);
  const int64_t bins = y.shape.dim(axis);
  const int64_t y_parts = y.shape.dim(y.shape.rank() - 1);
  const int64_t length = call.has_input(1) ? static_cast<int64_t>(call.input(1)[0])
                         : mirrored        ? 2 * (size - 1)
                                           : size;
  const auto value = [&](int64_t line, int64_t i) -> std::complex<double> {
    if (mirrored && i > length / 2) i = -(length - i);
    const int64_t k = std::abs(i);
    if (k >= size) return 0;
    const int64_t at = ((line / inner * size + k) * inner + line % inner) * parts;
    const std::complex<double> found(x[at], parts == 2 ? x[at + 1] : 0.0);
    if (mirrored && (k == 0 || 2 * k == length)) return found.real();
    return i < 0 ? std::conj(found) : found;
  };
  for (int64_t line = 0; line < outer * inner; ++line) {
    for (int64_t bin = 0; bin < bins; ++bin) {
      std::complex<double> sum = 0;
      for (int64_t i = 0; i < length; ++i) {
        const double angle = (inverse ? 2 : -2) * std::numbers::pi *
                             static_cast<double>(i * bin % length) / static_cast<double>(length);
        sum += value(line, i) * std::polar(1.0, angle);
      }
      if (inverse) sum /= static_cast<double>(length);
      const int64_t at = ((line / inner * bins + bin) * inner + line % inner) * y_parts;
      y[at] = sum.real();
      if (y_parts == 2) y[at + 1] = sum.imag();
    }
  }
  return absl::OkStatus();
}

}  // namespace

WEFT_REGISTER_REFERENCE_KERNEL("", "InstanceNormalization", ReferenceKernel(InstanceNormalization));
WEFT_REGISTER_REFERENCE_KERNEL("", "GroupNormalization", ReferenceKernel(GroupNormalization));
WEFT_REGISTER_REFERENCE_KERNEL("", "RMSNormalization", ReferenceKernel(RmsNormalization));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "RMSNormalizationGrad",
                               ReferenceKernel(RmsNormalizationGrad));
WEFT_REGISTER_REFERENCE_KERNEL("", "LpNormalization", ReferenceKernel(LpNormalization));
WEFT_REGISTER_REFERENCE_KERNEL("", "LRN", ReferenceKernel(Lrn));
WEFT_REGISTER_REFERENCE_KERNEL("", "DFT", ReferenceKernel(Dft));

}  // namespace weft::cpu
