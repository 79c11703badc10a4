// SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss and their backward kernels.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/loss/loss_samples.h"
#include "ops/kernels/cpu/normalization/softmax_simd.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Samples of one row of `inner` that are worked on together.
constexpr int64_t kTile = 64;
constexpr double kNanosecondsPerScore = 1.5;

struct Tile {
  int64_t sample = 0;  // the first
  int64_t count = 0;
  int64_t score = 0;  // FirstScore(sample)
};

// Calls fn(Tile) for tiles that cover all samples.
template <typename Fn>
void ForEachTile(const LossSamples& samples, int threads, Fn fn) {
  const int64_t per_row = (samples.inner + kTile - 1) / kTile;
  const double cost =
      kNanosecondsPerScore * static_cast<double>(samples.classes * std::min(kTile, samples.inner));
  ParallelFor(threads, samples.batch * per_row, 10 + cost, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t column = t % per_row * kTile;
      const int64_t sample = t / per_row * samples.inner + column;
      fn(Tile{sample, std::min(kTile, samples.inner - column), samples.FirstScore(sample)});
    }
  });
}

// Per sample of a tile: the largest score and the sum of e^(score - largest).
template <typename T>
struct SumExpOfTile {
  using Real = std::conditional_t<std::is_same_v<T, float>, float, double>;
  Real largest[kTile];
  Real sums[kTile];

  SumExpOfTile(const T* x, const Tile& tile, const LossSamples& samples) {
    if constexpr (std::is_same_v<T, float>) {
      if (samples.inner == 1) {
        const LogSumExpParts parts = LogSumExpOfRow(x + tile.score, samples.classes);
        largest[0] = parts.largest;
        sums[0] = static_cast<float>(parts.sum);
        return;
      }
      LogSumExpOfColumns(x + tile.score, tile.count, samples.classes, samples.inner, largest, sums);
    } else {
      for (int64_t i = 0; i < tile.count; ++i) Compute(x + tile.score + i, i, samples);
    }
  }

  void Compute(const T* x, int64_t i, const LossSamples& samples) {
    largest[i] = -std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < samples.classes; ++k) {
      largest[i] = std::max<double>(largest[i], Load(x[k * samples.inner]));
    }
    sums[i] = 0;
    for (int64_t k = 0; k < samples.classes; ++k) {
      sums[i] += std::exp(static_cast<double>(Load(x[k * samples.inner])) - largest[i]);
    }
  }
};

// log_prob = log_softmax(scores) over axis 1, every sample.
template <typename T>
void LogSoftmaxOfTile(const T* x, const Tile& tile, const LossSamples& samples, T* out) {
  if constexpr (std::is_same_v<T, float>) {
    if (samples.inner == 1) {
      return SoftmaxRows(SoftmaxOp::kLogSoftmax, x + tile.score, nullptr, out + tile.score, 1,
                         samples.classes);
    }
    return SoftmaxColumns(SoftmaxOp::kLogSoftmax, x + tile.score, nullptr, out + tile.score,
                          tile.count, samples.classes, samples.inner);
  } else {
    const SumExpOfTile<T> parts(x, tile, samples);
    for (int64_t i = 0; i < tile.count; ++i) {
      const double log_sum = std::log(parts.sums[i]);
      for (int64_t k = 0; k < samples.classes; ++k) {
        const int64_t at = tile.score + i + k * samples.inner;
        const double shifted = static_cast<double>(Load(x[at])) - parts.largest[i];
        out[at] = Store<T>(static_cast<ComputeType<T>>(shifted - log_sum));
      }
    }
  }
}

// The forward kernel: losses of all samples in double (the workspace), then their reduction in
// order.
template <typename T, typename L, bool softmax>
class LossKernel final : public Kernel {
 public:
  LossKernel(LossSamples samples, int threads, bool has_weights, bool has_log_prob)
      : samples_(std::move(samples)),
        threads_(threads),
        has_weights_(has_weights),
        has_log_prob_(has_log_prob) {}

  size_t workspace_bytes() const override { return samples_.count() * sizeof(double); }

  absl::Status Run(const KernelContext& context) override {
    const T* scores = Input<T>(context, 0);
    const L* labels = Input<L>(context, 1);
    const T* weights = has_weights_ ? Input<T>(context, 2) : nullptr;
    double* losses = static_cast<double*>(context.workspace);
    WEFT_RETURN_IF_ERROR(samples_.CheckLabels(labels));
    ForEachTile(samples_, threads_, [&](const Tile& tile) {
      LossesOfTile(scores, labels, weights, tile, losses);
      if (has_log_prob_) LogSoftmaxOfTile(scores, tile, samples_, Output<T>(context, 1));
    });
    Reduce(labels, weights, losses, Output<T>(context, 0));
    return absl::OkStatus();
  }

 private:
  void LossesOfTile(const T* scores, const L* labels, const T* weights, const Tile& tile,
                    double* losses) const {
    const auto score_of_label = [&](int64_t i) {
      const int64_t label = static_cast<int64_t>(labels[tile.sample + i]);
      return static_cast<double>(Load(scores[tile.score + i + label * samples_.inner]));
    };
    const auto set_loss = [&](int64_t i, auto loss) {
      const int64_t label = static_cast<int64_t>(labels[tile.sample + i]);
      losses[tile.sample + i] =
          samples_.IsIgnored(label) ? 0 : samples_.Weight(label, weights) * loss(i);
    };
    if constexpr (softmax) {
      const SumExpOfTile<T> parts(scores, tile, samples_);
      for (int64_t i = 0; i < tile.count; ++i) {
        set_loss(i, [&](int64_t k) {
          return std::log(static_cast<double>(parts.sums[k])) +
                 (static_cast<double>(parts.largest[k]) - score_of_label(k));
        });
      }
    } else {
      for (int64_t i = 0; i < tile.count; ++i) {
        set_loss(i, [&](int64_t k) { return -score_of_label(k); });
      }
    }
  }

  void Reduce(const L* labels, const T* weights, const double* losses, T* out) const {
    using C = ComputeType<T>;
    if (samples_.reduction == LossReduction::kNone) {
      for (int64_t s = 0; s < samples_.count(); ++s) out[s] = Store<T>(static_cast<C>(losses[s]));
      return;
    }
    double total = 0;
    for (int64_t s = 0; s < samples_.count(); ++s) total += losses[s];
    if (samples_.reduction == LossReduction::kMean) {
      total /= samples_.TotalWeight(labels, weights);
    }
    *out = Store<T>(static_cast<C>(total));
  }

  const LossSamples samples_;
  const int threads_;
  const bool has_weights_;
  const bool has_log_prob_;
};

// The backward kernel: (dy, scores, labels, weights) -> dscores.
template <typename T, typename L, bool softmax>
class LossGradKernel final : public Kernel {
 public:
  LossGradKernel(LossSamples samples, int threads, bool has_weights)
      : samples_(std::move(samples)), threads_(threads), has_weights_(has_weights) {}

  absl::Status Run(const KernelContext& context) override {
    const T* dy = Input<T>(context, 0);
    const T* scores = Input<T>(context, 1);
    const L* labels = Input<L>(context, 2);
    const T* weights = has_weights_ ? Input<T>(context, 3) : nullptr;
    T* out = Output<T>(context, 0);
    WEFT_RETURN_IF_ERROR(samples_.CheckLabels(labels));
    const bool mean = samples_.reduction == LossReduction::kMean;
    const double divisor = mean ? samples_.TotalWeight(labels, weights) : 1;
    ForEachTile(samples_, threads_, [&](const Tile& tile) {
      double scales[kTile];
      for (int64_t i = 0; i < tile.count; ++i) {
        const int64_t sample = tile.sample + i;
        const bool none = samples_.reduction == LossReduction::kNone;
        const double weight = samples_.Weight(static_cast<int64_t>(labels[sample]), weights);
        const double arriving = static_cast<double>(Load(dy[none ? sample : 0]));
        // Ignored samples give exact zeros, also where all are ignored.
        scales[i] = weight == 0 ? 0 : weight * arriving / divisor;
      }
      GradientOfTile(scores, tile, scales, out);
      SubtractAtLabels(labels, tile, scales, out);
    });
    return absl::OkStatus();
  }

 private:
  // scale * softmax(scores), or zeros.
  void GradientOfTile(const T* scores, const Tile& tile, const double* scales, T* out) const {
    if constexpr (!softmax) {
      for (int64_t k = 0; k < samples_.classes; ++k) {
        T* row = out + tile.score + k * samples_.inner;
        std::fill(row, row + tile.count, T{});
      }
    } else if constexpr (std::is_same_v<T, float>) {
      const SumExpOfTile<T> parts(scores, tile, samples_);
      float factors[kTile];
      for (int64_t i = 0; i < tile.count; ++i) {
        factors[i] = static_cast<float>(scales[i] / static_cast<double>(parts.sums[i]));
      }
      if (samples_.inner == 1) {
        return ScaledExpOfRow(scores + tile.score, parts.largest[0], factors[0], out + tile.score,
                              samples_.classes);
      }
      ScaledExpOfColumns(scores + tile.score, parts.largest, factors, out + tile.score, tile.count,
                         samples_.classes, samples_.inner);
    } else {
      const SumExpOfTile<T> parts(scores, tile, samples_);
      for (int64_t k = 0; k < samples_.classes; ++k) {
        for (int64_t i = 0; i < tile.count; ++i) {
          const int64_t at = tile.score + i + k * samples_.inner;
          const double e = std::exp(static_cast<double>(Load(scores[at])) - parts.largest[i]);
          out[at] = Store<T>(static_cast<ComputeType<T>>(scales[i] * e / parts.sums[i]));
        }
      }
    }
  }

  void SubtractAtLabels(const L* labels, const Tile& tile, const double* scales, T* out) const {
    for (int64_t i = 0; i < tile.count; ++i) {
      const int64_t label = static_cast<int64_t>(labels[tile.sample + i]);
      if (samples_.IsIgnored(label)) continue;
      T& at = out[tile.score + i + label * samples_.inner];
      at = Store<T>(static_cast<ComputeType<T>>(static_cast<double>(Load(at)) - scales[i]));
    }
  }

  const LossSamples samples_;
  const int threads_;
  const bool has_weights_;
};

template <bool softmax>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareLoss(const PrepareContext& context) {
  const LossSamples samples = LossSamples::Of(context, 0, 1);
  return PrepareByDType(context, context.InputDType(0), FloatTypes(), [&](auto score) {
    return PrepareByDType(
        context, context.InputDType(1), IndexTypes(),
        [&](auto label) -> absl::StatusOr<std::unique_ptr<Kernel>> {
          return std::make_unique<LossKernel<decltype(score), decltype(label), softmax>>(
              samples, context.threads(), context.HasInput(2), context.HasOutput(1));
        });
  });
}

template <bool softmax>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareLossGrad(const PrepareContext& context) {
  const LossSamples samples = LossSamples::Of(context, 1, 2);
  return PrepareByDType(context, context.InputDType(1), FloatTypes(), [&](auto score) {
    return PrepareByDType(
        context, context.InputDType(2), IndexTypes(),
        [&](auto label) -> absl::StatusOr<std::unique_ptr<Kernel>> {
          return std::make_unique<LossGradKernel<decltype(score), decltype(label), softmax>>(
              samples, context.threads(), context.HasInput(3));
        });
  });
}

WEFT_REGISTER_KERNEL("", "SoftmaxCrossEntropyLoss", DeviceKind::kCpu, PrepareLoss<true>);
WEFT_REGISTER_KERNEL("", "NegativeLogLikelihoodLoss", DeviceKind::kCpu, PrepareLoss<false>);
WEFT_REGISTER_KERNEL(kWeftDomain, "SoftmaxCrossEntropyGrad", DeviceKind::kCpu,
                     PrepareLossGrad<true>);
WEFT_REGISTER_KERNEL(kWeftDomain, "NegativeLogLikelihoodGrad", DeviceKind::kCpu,
                     PrepareLossGrad<false>);

}  // namespace
}  // namespace weft::cpu
