// Bodies of BatchNormalization and its gradient. With the samples' own statistics (m elements of a
// channel), dX = scale inverse (dY - sum(dY) / m - xhat sum(dY xhat) / m): Ioffe and Szegedy, Batch
// Normalization (2015), section 3.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_BATCH_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_BATCH_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/blocks/fold_body.h"
#include "ops/kernels/cuda/blocks/line_fold.h"
#include "ops/kernels/cuda/blocks/number_item.h"
#include "ops/kernels/cuda/normalization/batch_calls.h"

namespace weft::cuda {

// Writes what later launches need of a channel with these statistics.
template <class Gpu, typename C>
WEFT_GPU void KeepChannel(Gpu& gpu, const BatchPlan& plan, const BatchParameters& parameters,
                          const BatchChannels<C>& channels, int64_t channel, double mean,
                          double variance) {
  const double inverse = 1 / std::sqrt(variance + plan.epsilon);
  const double scale = ReadReal(gpu, parameters.scale, channel);
  gpu.Global(channels.mean)[channel] = static_cast<C>(mean);
  gpu.Global(channels.inverse)[channel] = static_cast<C>(inverse);
  gpu.Global(channels.factor)[channel] = static_cast<C>(scale * inverse);
  double first = 0;
  if (parameters.bias.data != nullptr) first = ReadReal(gpu, parameters.bias, channel);
  gpu.Global(channels.first)[channel] = static_cast<C>(first);
  if (channels.second != nullptr) gpu.Global(channels.second)[channel] = C(0);
}

// Takes a statistic of a batch into the running one: keep of the old, and the rest of the new.
template <class Gpu>
WEFT_GPU void KeepRunning(Gpu& gpu, const RealInput& old, const RealOutput& updated,
                          int64_t channel, double keep, double statistic) {
  if (updated.data == nullptr) return;
  const double running = ReadReal(gpu, old, channel);
  WriteReal(gpu, updated, channel, keep * running + (1 - keep) * statistic);
}

// Sums of d = x - s and d^2, where s is the channel's first element: close enough to the mean that
// variance = mean(d^2) - mean(d)^2 keeps its digits.
template <typename T>
struct BatchMomentsSource {
  using C = Compute<T>;
  using Total = Pair<double>;
  static constexpr int kWidth = kBatchWidth<T>;
  template <int V>
  struct State {
    C shifts[V];
  };

  BatchPlan plan;
  BatchParameters parameters;
  BatchChannels<C> channels;
  const T* x = nullptr;

  static WEFT_GPU Total Initial() { return PairFold<double>::Initial(); }
  static WEFT_GPU Total Combine(Total a, Total b) { return PairFold<double>::Combine(a, b); }
  template <int V, class Gpu>
  WEFT_GPU State<V> Open(Gpu& gpu, int64_t channel, int64_t, bool columns) const {
    State<V> state;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) state.shifts[v] = Shift(gpu, columns ? channel + v : channel);
    return state;
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const State<V>& state, const int64_t (&at)[K], int64_t, int,
                    Total (&totals)[V]) const {
    NumberItem<T, V> items[K];
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) items[k] = LoadNumbers<V>(gpu, x, at[k]);
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      C sum = 0;
      C squares = 0;
      WEFT_UNROLL
      for (int k = 0; k < K; ++k) {
        const C d = items[k].values[v] - state.shifts[v];
        sum += d;
        squares += d * d;
      }
      totals[v].a += static_cast<double>(sum);
      totals[v].b += static_cast<double>(squares);
    }
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t channel, Total total) const {
    double mean = 0;
    double variance = 0;
    double keep = 1;  // of no samples, running statistics stay
    if (plan.count() > 0) {
      const double away = total.a / plan.count();
      mean = static_cast<double>(Shift(gpu, channel)) + away;
      variance = total.b / plan.count() - away * away;
      if (variance < 0) variance = 0;
      keep = plan.momentum;
    }
    KeepRunning(gpu, parameters.mean, parameters.new_mean, channel, keep, mean);
    KeepRunning(gpu, parameters.variance, parameters.new_variance, channel, keep, variance);
    KeepChannel(gpu, plan, parameters, channels, channel, mean, variance);
  }

 private:
  template <class Gpu>
  WEFT_GPU C Shift(Gpu& gpu, int64_t channel) const {
    return LoadNumbers<1>(gpu, x, channel * plan.plane).values[0];
  }
};

// Running statistics from those that a library has found: 1 / inverse^2 is the variance and
// epsilon.
struct BatchRunningBody {
  BatchPlan plan;
  BatchParameters parameters;
  const float* mean = nullptr;
  const float* inverse = nullptr;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t c = gpu.index(); c < plan.channels; c += gpu.stride()) {
      const double factor = gpu.Global(inverse)[c];
      double variance = 1 / (factor * factor) - plan.epsilon;
      if (variance < 0) variance = 0;
      const double middle = gpu.Global(mean)[c];
      KeepRunning(gpu, parameters.mean, parameters.new_mean, c, plan.momentum, middle);
      KeepRunning(gpu, parameters.variance, parameters.new_variance, c, plan.momentum, variance);
    }
  }
};

template <typename C>
struct BatchGivenBody {
  BatchPlan plan;
  BatchParameters parameters;
  BatchChannels<C> channels;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t c = gpu.index(); c < plan.channels; c += gpu.stride()) {
      KeepChannel(gpu, plan, parameters, channels, c, ReadReal(gpu, parameters.mean, c),
                  ReadReal(gpu, parameters.variance, c));
    }
  }
};

// Sums of dy and dy xhat.
template <typename T>
struct BatchGradSource {
  using C = Compute<T>;
  using Total = Pair<double>;
  static constexpr int kWidth = kBatchWidth<T>;
  template <int V>
  struct State {
    C means[V];
    C inverses[V];
  };

  BatchPlan plan;
  BatchChannels<C> channels;
  const T* dy = nullptr;
  const T* x = nullptr;
  RealOutput dscale;
  RealOutput dbias;
  int32_t training = 0;

  static WEFT_GPU Total Initial() { return PairFold<double>::Initial(); }
  static WEFT_GPU Total Combine(Total a, Total b) { return PairFold<double>::Combine(a, b); }
  template <int V, class Gpu>
  WEFT_GPU State<V> Open(Gpu& gpu, int64_t channel, int64_t, bool columns) const {
    State<V> state;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      const int64_t c = columns ? channel + v : channel;
      state.means[v] = gpu.Global(channels.mean)[c];
      state.inverses[v] = gpu.Global(channels.inverse)[c];
    }
    return state;
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const State<V>& state, const int64_t (&at)[K], int64_t, int,
                    Total (&totals)[V]) const {
    NumberItem<T, V> slopes[K];
    NumberItem<T, V> items[K];
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      slopes[k] = LoadNumbers<V>(gpu, dy, at[k]);
      items[k] = LoadNumbers<V>(gpu, x, at[k]);
    }
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      C sum = 0;
      C along = 0;
      WEFT_UNROLL
      for (int k = 0; k < K; ++k) {
        const C slope = slopes[k].values[v];
        sum += slope;
        along += slope * ((items[k].values[v] - state.means[v]) * state.inverses[v]);
      }
      totals[v].a += static_cast<double>(sum);
      totals[v].b += static_cast<double>(along);
    }
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t channel, Total total) const {
    if (dscale.data != nullptr) WriteReal(gpu, dscale, channel, total.b);
    if (dbias.data != nullptr) WriteReal(gpu, dbias, channel, total.a);
    const double share = training != 0 && plan.count() > 0 ? 1 / plan.count() : 0;
    const C own = gpu.Global(channels.inverse)[channel];
    gpu.Global(channels.first)[channel] = static_cast<C>(total.a * share);
    gpu.Global(channels.second)[channel] =
        static_cast<C>(total.b * share * static_cast<double>(own));
  }
};

// The channel of packet i of [samples, channels, packets of a plane].
WEFT_GPU int64_t ChannelOfPacket(const BatchPlan& plan, int64_t i, int64_t plane) {
  if (plan.wide != 0) return i / plane % plan.channels;
  const int32_t row = plan.by_plane.Divide(static_cast<int32_t>(i)).quotient;
  return plan.by_channels.Divide(row).rest;
}

template <typename T, int V>
struct BatchApplyBody {
  BatchPlan plan;
  BatchChannels<Compute<T>> channels;
  const T* x = nullptr;
  T* y = nullptr;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t plane = plan.plane / V;
    const int64_t packets = plan.samples * plan.channels * plane;
    for (int64_t i = gpu.index(); i < packets; i += gpu.stride()) {
      const int64_t c = ChannelOfPacket(plan, i, plane);
      const Compute<T> mean = gpu.Global(channels.mean)[c];
      const Compute<T> factor = gpu.Global(channels.factor)[c];
      const Compute<T> first = gpu.Global(channels.first)[c];
      NumberItem<T, V> item = LoadNumbers<V>(gpu, x, i * V);
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) item.values[v] = (item.values[v] - mean) * factor + first;
      StoreNumbers<V>(gpu, y, i * V, item);
    }
  }
};

template <typename T, int V>
struct BatchGradApplyBody {
  BatchPlan plan;
  BatchChannels<Compute<T>> channels;
  const T* dy = nullptr;
  const T* x = nullptr;
  T* dx = nullptr;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t plane = plan.plane / V;
    const int64_t packets = plan.samples * plan.channels * plane;
    for (int64_t i = gpu.index(); i < packets; i += gpu.stride()) {
      const int64_t c = ChannelOfPacket(plan, i, plane);
      const Compute<T> mean = gpu.Global(channels.mean)[c];
      const Compute<T> factor = gpu.Global(channels.factor)[c];
      const Compute<T> first = gpu.Global(channels.first)[c];
      const Compute<T> second = gpu.Global(channels.second)[c];
      const NumberItem<T, V> slopes = LoadNumbers<V>(gpu, dy, i * V);
      NumberItem<T, V> item = LoadNumbers<V>(gpu, x, i * V);
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) {
        item.values[v] = factor * (slopes.values[v] - first - (item.values[v] - mean) * second);
      }
      StoreNumbers<V>(gpu, dx, i * V, item);
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_BATCH_BODY_H_
