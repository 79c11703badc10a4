// Sources (ops/kernels/cuda/blocks/fold_body.h) and bodies of the losses of labels.
#ifndef WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/blocks/best.h"
#include "ops/kernels/cuda/blocks/fold_body.h"
#include "ops/kernels/cuda/blocks/line_fold.h"
#include "ops/kernels/cuda/blocks/number_item.h"
#include "ops/kernels/cuda/loss/loss_labels.h"

namespace weft::cuda {

// What a sample's loss is made of.
template <typename T>
struct SampleLosses {
  LossScores scores;
  LossLabels labels;
  const T* x = nullptr;
  double* losses = nullptr;
  double* weights = nullptr;

  // -weight (score of the label - largest - log_sum)
  template <class Gpu>
  WEFT_GPU void Write(Gpu& gpu, int64_t sample, double largest, double log_sum) const {
    const SampleLabel found = LabelOf(gpu, labels, sample);
    double loss = 0;
    if (found.label >= 0) {
      const int64_t at = sample / scores.inner * scores.inner * scores.classes +
                         sample % scores.inner + found.label * scores.inner;
      const double score = static_cast<double>(LoadNumbers<1>(gpu, x, at).values[0]);
      loss = found.weight * (log_sum + (largest - score));
    }
    gpu.Global(losses)[sample] = loss;
    gpu.Global(weights)[sample] = found.weight;
  }
};

// One pass over the scores: the largest and the sum of powers.
template <typename T>
struct CrossEntropySource {
  using Total = LogSum;
  static constexpr int kWidth = kLossWidth<T>;
  static constexpr bool kRagged = true;
  template <int V>
  using State = Stateless;

  SampleLosses<T> samples;

  static WEFT_GPU Total Initial() { return LogSumFold::Initial(); }
  static WEFT_GPU Total Combine(Total a, Total b) { return LogSumFold::Combine(a, b); }
  template <int V, class Gpu>
  WEFT_GPU Stateless Open(Gpu&, int64_t, int64_t, bool) const {
    return {};
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const Stateless&, const int64_t (&at)[K], int64_t, int,
                    Total (&totals)[V]) const {
    NumberItem<T, V> items[K];
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) items[k] = LoadNumbers<V>(gpu, samples.x, at[k]);
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      Compute<T> numbers[K];
      WEFT_UNROLL
      for (int k = 0; k < K; ++k) numbers[k] = items[k].values[v];
      LogSumFold::Add(totals[v], numbers);
    }
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t sample, Total total) const {
    samples.Write(gpu, sample, total.largest, std::log(total.sum));
  }
};

// The scores are logarithms.
template <typename T>
struct NegativeLogBody {
  SampleLosses<T> samples;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t s = gpu.index(); s < samples.scores.samples; s += gpu.stride()) {
      samples.Write(gpu, s, 0.0, 0.0);
    }
  }
};

// Sums of losses and weights.
struct LossTotalSource {
  using Total = Pair<double>;
  static constexpr int kWidth = 1;
  template <int V>
  using State = Stateless;

  const double* losses = nullptr;
  const double* weights = nullptr;
  RealOutput y;
  int32_t mean = 0;

  static WEFT_GPU Total Initial() { return PairFold<double>::Initial(); }
  static WEFT_GPU Total Combine(Total a, Total b) { return PairFold<double>::Combine(a, b); }
  template <int V, class Gpu>
  WEFT_GPU Stateless Open(Gpu&, int64_t, int64_t, bool) const {
    return {};
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const Stateless&, const int64_t (&at)[K], int64_t, int,
                    Total (&totals)[V]) const {
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      const double loss = gpu.Global(losses)[at[k]];
      totals[0].a += loss;
      if (mean != 0) {
        const double weight = gpu.Global(weights)[at[k]];
        totals[0].b += weight;
      }
    }
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t, Total total) const {
    WriteReal(gpu, y, 0, mean != 0 ? total.a / total.b : total.a);
  }
};

struct LossCopyBody {
  int64_t samples = 0;
  const double* losses = nullptr;
  RealOutput y;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t s = gpu.index(); s < samples; s += gpu.stride()) {
      const double loss = gpu.Global(losses)[s];
      WriteReal(gpu, y, s, loss);
    }
  }
};

struct LossWeightSource {
  using Total = double;
  static constexpr int kWidth = 1;
  template <int V>
  using State = Stateless;

  LossLabels labels;
  RealOutput y;

  static WEFT_GPU Total Initial() { return 0; }
  static WEFT_GPU Total Combine(Total a, Total b) { return a + b; }
  template <int V, class Gpu>
  WEFT_GPU Stateless Open(Gpu&, int64_t, int64_t, bool) const {
    return {};
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const Stateless&, const int64_t (&at)[K], int64_t, int,
                    Total (&totals)[V]) const {
    for (int k = 0; k < K; ++k) totals[0] += LabelOf(gpu, labels, at[k]).weight;
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t, Total total) const {
    WriteReal(gpu, y, 0, total);
  }
};

// The first of the largest scores. NaN is larger than nothing, and nothing is larger than a NaN in
// front.
template <typename T>
struct CorrectSource {
  using Total = Best<double>;
  static constexpr int kWidth = kLossWidth<T>;
  template <int V>
  using State = bool;  // whether a packet's elements are of several samples

  IndexInput labels;
  const T* x = nullptr;
  double* hits = nullptr;

  static WEFT_GPU Total Initial() { return {0.0, -1}; }
  static WEFT_GPU Total Combine(Total a, Total b) { return Better(a, b); }
  template <int V, class Gpu>
  WEFT_GPU bool Open(Gpu&, int64_t, int64_t, bool columns) const {
    return columns;
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const bool& columns, const int64_t (&at)[K], int64_t unit, int step,
                    Total (&totals)[V]) const {
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      const NumberItem<T, V> item = LoadNumbers<V>(gpu, x, at[k]);
      const int64_t first = unit + static_cast<int64_t>(k) * step;
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) {
        const double value = static_cast<double>(item.values[v]);
        const int64_t position = columns ? first : first * V + v;
        if (value != value && position > 0) continue;
        totals[v] = Better(totals[v], {value, position});
      }
    }
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t sample, Total total) const {
    const bool hit = total.position >= 0 && total.position == ReadIndex(gpu, labels, sample);
    gpu.Global(hits)[sample] = hit ? 1.0 : 0.0;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_BODY_H_
