// Layer and batch normalization, from their definitions.
#include <cmath>
#include <vector>

#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

struct Moments {
  double mean = 0;
  double variance = 0;
};

// Of the elements of `x` that `take(i)` picks.
template <typename Take>
Moments MomentsOf(const ReferenceOperand& x, Take take) {
  Moments moments;
  double count = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    if (!take(i)) continue;
    moments.mean += x[i];
    count += 1;
  }
  if (count == 0) return moments;
  moments.mean /= count;
  for (int64_t i = 0; i < x.size(); ++i) {
    if (take(i)) moments.variance += (x[i] - moments.mean) * (x[i] - moments.mean);
  }
  moments.variance /= count;
  return moments;
}

int64_t RowSize(const ReferenceCall& call, const Shape& x) {
  const int axis = *NormalizeAxis(call.attributes().Int("axis", -1), x.rank());
  return x.ProductOf(axis, x.rank());
}

absl::Status LayerNormalization(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  const int64_t n = RowSize(call, x.shape);
  const double epsilon = call.attributes().Float("epsilon", 1e-5f);
  for (int64_t row = 0; n > 0 && row < x.size() / n; ++row) {
    const Moments moments = MomentsOf(x, [&](int64_t i) { return i / n == row; });
    const double deviation = std::sqrt(moments.variance + epsilon);
    for (int64_t j = 0; j < n; ++j) {
      double& y = call.output(0)[row * n + j];
      y = (x[row * n + j] - moments.mean) / deviation * call.input(1)[j];
      if (call.has_input(2)) y += call.input(2)[j];
    }
    if (call.has_output(1)) call.output(1)[row] = moments.mean;
    if (call.has_output(2)) call.output(2)[row] = 1 / deviation;
  }
  return absl::OkStatus();
}

absl::Status LayerNormalizationGrad(ReferenceCall& call) {
  const ReferenceOperand& dy = call.input(0);
  const ReferenceOperand& x = call.input(1);
  const int64_t n = RowSize(call, x.shape);
  for (int64_t row = 0; n > 0 && row < x.size() / n; ++row) {
    const double mean = call.input(3)[row];
    const double inverse = call.input(4)[row];
    const auto xhat = [&](int64_t j) { return (x[row * n + j] - mean) * inverse; };
    const auto g = [&](int64_t j) { return dy[row * n + j] * call.input(2)[j]; };
    double mean_g = 0;
    double mean_g_xhat = 0;
    for (int64_t j = 0; j < n; ++j) {
      mean_g += g(j) / static_cast<double>(n);
      mean_g_xhat += g(j) * xhat(j) / static_cast<double>(n);
    }
    for (int64_t j = 0; j < n; ++j) {
      if (call.has_output(0)) {
        call.output(0)[row * n + j] = inverse * (g(j) - mean_g - xhat(j) * mean_g_xhat);
      }
      if (call.has_output(1)) call.output(1)[j] += dy[row * n + j] * xhat(j);
      if (call.has_output(2)) call.output(2)[j] += dy[row * n + j];
    }
  }
  return absl::OkStatus();
}

// The channel of element i of [batch, channels, ...].
int64_t ChannelOf(const Shape& x, int64_t i) { return i / x.ProductOf(2, x.rank()) % x.dim(1); }

// Given in the inputs `mean` and `mean` + 1, or of the channel's samples in training mode.
Moments ChannelMoments(const ReferenceCall& call, const ReferenceOperand& x, int64_t channel,
                       int mean) {
  if (call.attributes().Int("training_mode", 0) == 0) {
    return {call.input(mean)[channel], call.input(mean + 1)[channel]};
  }
  return MomentsOf(x, [&](int64_t i) { return ChannelOf(x.shape, i) == channel; });
}

absl::Status BatchNormalization(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  const double epsilon = call.attributes().Float("epsilon", 1e-5f);
  const double momentum = x.size() == 0 ? 1.0 : call.attributes().Float("momentum", 0.9f);
  for (int64_t channel = 0; channel < x.shape.dim(1); ++channel) {
    const Moments moments = ChannelMoments(call, x, channel, 3);
    for (int64_t i = 0; i < x.size(); ++i) {
      if (ChannelOf(x.shape, i) != channel) continue;
      call.output(0)[i] =
          (x[i] - moments.mean) / std::sqrt(moments.variance + epsilon) * call.input(1)[channel] +
          call.input(2)[channel];
    }
    const double running[] = {moments.mean, moments.variance};
    for (int i = 1; i < 3; ++i) {
      if (!call.has_output(i)) continue;
      call.output(i)[channel] =
          momentum * call.input(i + 2)[channel] + (1 - momentum) * running[i - 1];
    }
  }
  return absl::OkStatus();
}

absl::Status BatchNormalizationGrad(ReferenceCall& call) {
  const ReferenceOperand& dy = call.input(0);
  const ReferenceOperand& x = call.input(1);
  const double epsilon = call.attributes().Float("epsilon", 1e-5f);
  const bool training = call.attributes().Int("training_mode", 0) != 0;
  for (int64_t channel = 0; channel < x.shape.dim(1); ++channel) {
    const Moments moments = ChannelMoments(call, x, channel, 3);
    const double inverse = 1 / std::sqrt(moments.variance + epsilon);
    double count = 0;
    double sum = 0;
    double sum_xhat = 0;
    for (int64_t i = 0; i < x.size(); ++i) {
      if (ChannelOf(x.shape, i) != channel) continue;
      count += 1;
      sum += dy[i];
      sum_xhat += dy[i] * (x[i] - moments.mean) * inverse;
    }
    if (call.has_output(1)) call.output(1)[channel] = sum_xhat;
    if (call.has_output(2)) call.output(2)[channel] = sum;
    for (int64_t i = 0; call.has_output(0) && i < x.size(); ++i) {
      if (ChannelOf(x.shape, i) != channel) continue;
      const double xhat = (x[i] - moments.mean) * inverse;
      const double shift = training ? (sum + xhat * sum_xhat) / count : 0;
      call.output(0)[i] = call.input(2)[channel] * inverse * (dy[i] - shift);
    }
  }
  return absl::OkStatus();
}

// Of a step's only micro-batch.
absl::Status RunningTerm(ReferenceCall& call) {
  const double share = call.attributes().Float("share", 0.0f);
  for (int64_t i = 0; i < call.output(0).size(); ++i) call.output(0)[i] = share * call.input(0)[i];
  if (call.has_output(1)) call.output(1)[0] = share;
  return absl::OkStatus();
}

}  // namespace

WEFT_REGISTER_REFERENCE_KERNEL("", "LayerNormalization", ReferenceKernel(LayerNormalization));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "LayerNormalizationGrad",
                               ReferenceKernel(LayerNormalizationGrad));
WEFT_REGISTER_REFERENCE_KERNEL("", "BatchNormalization", ReferenceKernel(BatchNormalization));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "BatchNormalizationGrad",
                               ReferenceKernel(BatchNormalizationGrad));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "RunningTerm", ReferenceKernel(RunningTerm));

}  // namespace weft::cpu
