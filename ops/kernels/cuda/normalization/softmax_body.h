// Sources (ops/kernels/cuda/blocks/line_body.h) of Softmax, LogSoftmax and their gradients.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_SOFTMAX_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_SOFTMAX_BODY_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/blocks/line_body.h"
#include "ops/kernels/cuda/blocks/number_item.h"

namespace weft::cuda {

// Of rows in registers: the largest element, then the sum of powers, which stay in the items.
template <typename T, bool kLog>
struct SoftmaxRowSource {
  using C = Compute<T>;
  static constexpr int kPasses = 2;
  static constexpr int kWidth = kWidest<T>;
  template <int kPass>
  using Fold = std::conditional_t<kPass == 0, MaxFold<C>, SumFold<C>>;
  template <int V>
  using Item = NumberItem<T, V>;
  struct State {
    C largest = 0;
    C factor = 0;  // 1 / sum, or the sum's logarithm
  };

  const T* x = nullptr;
  T* y = nullptr;

  template <class Gpu>
  WEFT_GPU State Open(Gpu&, int64_t) const {
    return {};
  }
  template <int V, class Gpu>
  WEFT_GPU Item<V> Load(Gpu& gpu, const State&, int64_t at, int64_t) const {
    return LoadNumbers<V>(gpu, x, at);
  }
  template <int kPass, int V>
  WEFT_GPU void Add(const State& state, Item<V>& item, int64_t, C& total) const {
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      if constexpr (kPass == 0) {
        total = MaxFold<C>::Combine(total, item.values[v]);
      } else {
        const C shifted = item.values[v] - state.largest;
        const C power = std::exp(shifted);
        item.values[v] = kLog ? shifted : power;
        total += power;
      }
    }
  }
  template <int kPass>
  WEFT_GPU void Close(State& state, C total) const {
    if constexpr (kPass == 0) {
      state.largest = total;
    } else {
      state.factor = kLog ? std::log(total) : C(1) / total;
    }
  }
  template <int V, class Gpu>
  WEFT_GPU void Write(Gpu& gpu, const State& state, const Item<V>& item, int64_t at,
                      int64_t) const {
    Item<V> result;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      result.values[v] = kLog ? item.values[v] - state.factor : item.values[v] * state.factor;
    }
    StoreNumbers<V>(gpu, y, at, result);
  }
  template <class Gpu>
  WEFT_GPU void Leave(Gpu&, const State&, int64_t) const {}
};

// Of other lines: the largest element and the sum of powers in one pass.
template <typename T, bool kLog>
struct SoftmaxLineSource {
  using C = Compute<T>;
  static constexpr int kPasses = 1;
  static constexpr int kWidth = kWidest<T>;
  static constexpr bool kRagged = true;
  template <int kPass>
  using Fold = LogSumFold;
  template <int V>
  using Item = NumberItem<T, V>;
  struct State {
    C largest = 0;
    C factor = 0;  // 1 / sum, or the sum's logarithm
  };

  const T* x = nullptr;
  T* y = nullptr;

  template <class Gpu>
  WEFT_GPU State Open(Gpu&, int64_t) const {
    return {};
  }
  template <int V, class Gpu>
  WEFT_GPU Item<V> Load(Gpu& gpu, const State&, int64_t at, int64_t) const {
    return LoadNumbers<V>(gpu, x, at);
  }
  template <int kPass, int V>
  WEFT_GPU void Add(const State&, Item<V>& item, int64_t, LogSum& total) const {
    LogSumFold::Add(total, item.values);
  }
  template <int kPass>
  WEFT_GPU void Close(State& state, const LogSum& total) const {
    state.largest = static_cast<C>(total.largest);
    state.factor = static_cast<C>(kLog ? std::log(total.sum) : 1 / total.sum);
  }
  template <int V, class Gpu>
  WEFT_GPU void Write(Gpu& gpu, const State& state, const Item<V>& item, int64_t at,
                      int64_t) const {
    Item<V> result;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      const C shifted = item.values[v] - state.largest;
      result.values[v] = kLog ? shifted - state.factor : std::exp(shifted) * state.factor;
    }
    StoreNumbers<V>(gpu, y, at, result);
  }
  template <class Gpu>
  WEFT_GPU void Leave(Gpu&, const State&, int64_t) const {}
};

// y (dy - sum(dy y)), or for the logarithm dy - e^y sum(dy). Sum: the type of sums.
template <typename T, bool kLog, typename Sum>
struct SoftmaxGradSource {
  using C = Compute<T>;
  static constexpr int kPasses = 1;
  static constexpr int kWidth = kWidest<T>;
  static constexpr bool kRagged = true;
  template <int kPass>
  using Fold = SumFold<Sum>;
  template <int V>
  struct Item {
    NumberItem<T, V> dy;
    NumberItem<T, V> y;
  };
  struct State {
    C sum = 0;
  };

  const T* dy = nullptr;
  const T* y = nullptr;
  T* dx = nullptr;

  template <class Gpu>
  WEFT_GPU State Open(Gpu&, int64_t) const {
    return {};
  }
  template <int V, class Gpu>
  WEFT_GPU Item<V> Load(Gpu& gpu, const State&, int64_t at, int64_t) const {
    return {LoadNumbers<V>(gpu, dy, at), LoadNumbers<V>(gpu, y, at)};
  }
  template <int kPass, int V>
  WEFT_GPU void Add(const State&, Item<V>& item, int64_t, Sum& total) const {
    C sum = 0;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      sum += kLog ? item.dy.values[v] : item.dy.values[v] * item.y.values[v];
    }
    total += static_cast<Sum>(sum);
  }
  template <int kPass>
  WEFT_GPU void Close(State& state, Sum total) const {
    state.sum = static_cast<C>(total);
  }
  template <int V, class Gpu>
  WEFT_GPU void Write(Gpu& gpu, const State& state, const Item<V>& item, int64_t at,
                      int64_t) const {
    NumberItem<T, V> result;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      const C slope = item.dy.values[v];
      const C value = item.y.values[v];
      result.values[v] = kLog ? slope - std::exp(value) * state.sum : value * (slope - state.sum);
    }
    StoreNumbers<V>(gpu, dx, at, result);
  }
  template <class Gpu>
  WEFT_GPU void Leave(Gpu&, const State&, int64_t) const {}
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_SOFTMAX_BODY_H_
