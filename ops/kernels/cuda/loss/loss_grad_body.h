// Gradients of the losses of labels (ops/kernels/cuda/blocks/line_body.h).
#ifndef WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_GRAD_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_GRAD_BODY_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/blocks/line_body.h"
#include "ops/kernels/cuda/blocks/number_item.h"
#include "ops/kernels/cuda/loss/loss_labels.h"

namespace weft::cuda {

// dx = scale (softmax(x) - one at the label). `kInRow`: of rows in registers, in two passes, the
// largest score and the sum of powers, which stay in the items; else in one.
template <typename T, bool kInRow>
struct CrossEntropyGradSource {
  using C = Compute<T>;
  static constexpr int kPasses = kInRow ? 2 : 1;
  static constexpr int kWidth = kWidest<T>;
  static constexpr bool kRagged = true;
  template <int kPass>
  using Fold = std::conditional_t<!kInRow, LogSumFold,
                                  std::conditional_t<kPass == 0, MaxFold<C>, SumFold<C>>>;
  template <int V>
  using Item = NumberItem<T, V>;
  struct State {
    int64_t label = -1;
    C scale = 0;
    C largest = 0;
    C factor = 0;  // scale / sum
  };

  LossLabels labels;
  LossSlope slope;
  const T* x = nullptr;
  T* dx = nullptr;

  template <class Gpu>
  WEFT_GPU State Open(Gpu& gpu, int64_t sample) const {
    const SampleLabel found = LabelOf(gpu, labels, sample);
    State state;
    state.label = found.label;
    state.scale = static_cast<C>(ScaleOf(gpu, slope, found, sample));
    return state;
  }
  template <int V, class Gpu>
  WEFT_GPU Item<V> Load(Gpu& gpu, const State&, int64_t at, int64_t) const {
    return LoadNumbers<V>(gpu, x, at);
  }
  template <int kPass, int V, typename Total>
  WEFT_GPU void Add(const State& state, Item<V>& item, int64_t, Total& total) const {
    if constexpr (!kInRow) {
      LogSumFold::Add(total, item.values);
    } else {
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) {
        if constexpr (kPass == 0) {
          total = MaxFold<C>::Combine(total, item.values[v]);
        } else {
          item.values[v] = std::exp(item.values[v] - state.largest);
          total += item.values[v];
        }
      }
    }
  }
  template <int kPass, typename Total>
  WEFT_GPU void Close(State& state, const Total& total) const {
    if constexpr (!kInRow) {
      state.largest = static_cast<C>(total.largest);
      state.factor = static_cast<C>(static_cast<double>(state.scale) / total.sum);
    } else if constexpr (kPass == 0) {
      state.largest = total;
    } else {
      state.factor = state.scale / total;
    }
  }
  template <int V, class Gpu>
  WEFT_GPU void Write(Gpu& gpu, const State& state, const Item<V>& item, int64_t at,
                      int64_t position) const {
    Item<V> result;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      C value = item.values[v];
      if constexpr (!kInRow) value = std::exp(value - state.largest);
      value *= state.factor;
      if (position + v == state.label) value -= state.scale;
      // Exact zeros of what does not count.
      result.values[v] = state.scale == C(0) ? C(0) : value;
    }
    StoreNumbers<V>(gpu, dx, at, result);
  }
  template <class Gpu>
  WEFT_GPU void Leave(Gpu&, const State&, int64_t) const {}
};

// -scale at the label, zeros elsewhere. A thread per element.
template <typename T>
struct NegativeLogGradBody {
  LossScores scores;
  LossLabels labels;
  LossSlope slope;
  T* dx = nullptr;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t elements = scores.samples * scores.classes;
    for (int64_t i = gpu.index(); i < elements; i += gpu.stride()) {
      const int64_t row = i / scores.inner;
      const int64_t sample = row / scores.classes * scores.inner + i % scores.inner;
      const SampleLabel found = LabelOf(gpu, labels, sample);
      Compute<T> value = 0;
      if (found.label == row % scores.classes && found.weight != 0) {
        value = static_cast<Compute<T>>(-ScaleOf(gpu, slope, found, sample));
      }
      gpu.Global(dx)[i] = Narrow<T>(value);
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_GRAD_BODY_H_
