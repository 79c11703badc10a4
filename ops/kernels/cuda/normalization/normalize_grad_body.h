// Sources of the gradients of layer and RMS normalization: rows
// (ops/kernels/cuda/blocks/line_body.h) for dx, columns (ops/kernels/cuda/blocks/fold_body.h) for
// the parameters. Sum: the type of sums over a row.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_GRAD_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_GRAD_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/fold_body.h"
#include "ops/kernels/cuda/blocks/line_body.h"
#include "ops/kernels/cuda/blocks/number_item.h"
#include "ops/kernels/cuda/normalization/normalize_body.h"

namespace weft::cuda {

// With g = scale dy and n = (x - mean) inverse: dx = inverse (g - mean(g) - n mean(g n)). RMS:
// n = x inverse and dx = inverse (g - n mean(g n)), where mean(g n) = inverse mean(g x).
template <typename T, bool kRms, typename Sum>
struct NormalizeGradSource {
  using C = Compute<T>;
  static constexpr int kPasses = 1;
  static constexpr int kWidth = kWidest<T>;
  template <int kPass>
  using Fold = PairFold<Sum>;  // sums of g and g n; of x^2 and g x
  template <int V>
  struct Item {
    C g[V];
    C n[V];  // of RMS: x
  };
  struct State {
    C mean = 0;
    C inverse = 0;
    C mean_g = 0;
    C mean_gn = 0;
  };

  NormalizeGradOperands<T> operands;
  int64_t size = 1;

  template <class Gpu>
  WEFT_GPU State Open(Gpu& gpu, int64_t row) const {
    State state;
    if constexpr (!kRms) {
      state.mean = gpu.Global(operands.mean)[row];
      state.inverse = gpu.Global(operands.inverse)[row];
    }
    return state;
  }
  template <int V, class Gpu>
  WEFT_GPU Item<V> Load(Gpu& gpu, const State& state, int64_t at, int64_t position) const {
    const NumberItem<T, V> dy = LoadNumbers<V>(gpu, operands.dy, at);
    const NumberItem<T, V> x = LoadNumbers<V>(gpu, operands.x, at);
    const NumberItem<T, V> scale = LoadNumbers<V>(gpu, operands.scale, position);
    Item<V> item;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      item.g[v] = dy.values[v] * scale.values[v];
      item.n[v] = kRms ? x.values[v] : (x.values[v] - state.mean) * state.inverse;
    }
    return item;
  }
  template <int kPass, int V>
  WEFT_GPU void Add(const State&, Item<V>& item, int64_t, Pair<Sum>& total) const {
    C first = 0;
    C second = 0;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      first += kRms ? item.n[v] * item.n[v] : item.g[v];
      second += item.g[v] * item.n[v];
    }
    total.a += static_cast<Sum>(first);
    total.b += static_cast<Sum>(second);
  }
  template <int kPass>
  WEFT_GPU void Close(State& state, const Pair<Sum>& total) const {
    const C along = static_cast<C>(total.b / static_cast<Sum>(size));
    if constexpr (kRms) {
      state.inverse = InverseDeviation<C>(total.a, size, operands.epsilon);
      state.mean_gn = state.inverse * along;
    } else {
      state.mean_g = static_cast<C>(total.a / static_cast<Sum>(size));
      state.mean_gn = along;
    }
  }
  template <int V, class Gpu>
  WEFT_GPU void Write(Gpu& gpu, const State& state, const Item<V>& item, int64_t at,
                      int64_t) const {
    if (operands.dx == nullptr) return;
    NumberItem<T, V> result;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      const C n = kRms ? item.n[v] * state.inverse : item.n[v];
      result.values[v] = state.inverse * (item.g[v] - state.mean_g - n * state.mean_gn);
    }
    StoreNumbers<V>(gpu, operands.dx, at, result);
  }
  template <class Gpu>
  WEFT_GPU void Leave(Gpu& gpu, const State& state, int64_t row) const {
    if (operands.new_inverse != nullptr) gpu.Global(operands.new_inverse)[row] = state.inverse;
  }
};

// Columns of dy n and dy.
template <typename T>
struct NormalizeColumnsSource {
  using C = Compute<T>;
  using Total = Pair<double>;
  static constexpr int kWidth = kColumnsWidth<T>;
  template <int V>
  using State = Stateless;

  NormalizeColumnsOperands<T> operands;

  static WEFT_GPU Total Initial() { return PairFold<double>::Initial(); }
  static WEFT_GPU Total Combine(Total a, Total b) { return PairFold<double>::Combine(a, b); }
  template <int V, class Gpu>
  WEFT_GPU Stateless Open(Gpu&, int64_t, int64_t, bool) const {
    return {};
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const Stateless&, const int64_t (&at)[K], int64_t unit, int step,
                    Total (&totals)[V]) const {
    NumberItem<T, V> slopes[K];
    NumberItem<T, V> items[K];
    C means[K];
    C inverses[K];
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      const int64_t row = unit + static_cast<int64_t>(k) * step;
      slopes[k] = LoadNumbers<V>(gpu, operands.dy, at[k]);
      items[k] = LoadNumbers<V>(gpu, operands.x, at[k]);
      means[k] = operands.mean == nullptr ? C(0) : At(gpu, operands.mean, row);
      inverses[k] = At(gpu, operands.inverse, row);
    }
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      C scale = 0;
      C bias = 0;
      WEFT_UNROLL
      for (int k = 0; k < K; ++k) {
        const C slope = slopes[k].values[v];
        scale += slope * ((items[k].values[v] - means[k]) * inverses[k]);
        bias += slope;
      }
      totals[v].a += static_cast<double>(scale);
      totals[v].b += static_cast<double>(bias);
    }
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t column, Total total) const {
    if (operands.dscale != nullptr) {
      gpu.Global(operands.dscale)[column] = Narrow<T>(static_cast<C>(total.a));
    }
    if (operands.dbias != nullptr) {
      gpu.Global(operands.dbias)[column] = Narrow<T>(static_cast<C>(total.b));
    }
  }

 private:
  template <class Gpu>
  static WEFT_GPU C At(Gpu& gpu, const C* from, int64_t row) {
    return gpu.Global(from)[row];
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_GRAD_BODY_H_
