// ArgMax, ArgMin and Hardmax: the best element of a line and its position.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_ARG_EXTREME_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_ARG_EXTREME_BODY_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/blocks/best.h"
#include "ops/kernels/cuda/blocks/fold_body.h"
#include "ops/kernels/cuda/blocks/line_body.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/reduction/arg_extreme_launch.h"
#include "ops/kernels/cuda/reduction/ranked_number.h"

namespace weft::cuda {

// The position of the best element, of floats. Which elements beat others: see BestOrder.
template <typename T>
struct ArgSource {
  using Total = Best<double>;
  static constexpr int kWidth = kArgWidth<T>;
  template <int V>
  using State = bool;  // whether a packet's elements are of several lines

  const T* x = nullptr;
  int64_t* y = nullptr;
  int32_t smallest = 0;
  int32_t last = 0;  // of equal ones, the last

  // Totals are of the order of `smallest`: values of the smallest are turned around when read.
  static WEFT_GPU Total Initial() { return {0.0, -1}; }
  static WEFT_GPU Total Combine(Total a, Total b) { return Better(a, b); }
  template <int V, class Gpu>
  WEFT_GPU bool Open(Gpu&, int64_t, int64_t, bool columns) const {
    return columns;
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const bool& columns, const int64_t (&at)[K], int64_t unit, int step,
                    Total (&totals)[V]) const {
    const auto from = gpu.Global(x);
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      const Packet<T, V> packet = gpu.template Load<V>(from, at[k]);
      const int64_t first = unit + static_cast<int64_t>(k) * step;
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) {
        const int64_t position = columns ? first : first * V + v;
        const double value = Ranked(static_cast<double>(Widen(packet.values[v])), smallest != 0);
        // The last of equal ones is the first in a count from behind.
        totals[v] = Better(totals[v], {value, last != 0 ? kFromBehind - position : position});
      }
    }
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t output, Total total) const {
    gpu.Global(y)[output] = last != 0 ? kFromBehind - total.position : total.position;
  }
};

// The same of whole numbers of any type.
struct WholeArgSource {
  using Total = Best<int64_t>;
  static constexpr int kWidth = 1;
  template <int V>
  using State = Stateless;

  const void* x = nullptr;
  DType dtype = DType::kInvalid;
  int64_t* y = nullptr;
  int32_t smallest = 0;
  int32_t last = 0;

  static WEFT_GPU Total Initial() { return {0, -1}; }
  static WEFT_GPU Total Combine(Total a, Total b) { return Better(a, b); }
  template <int V, class Gpu>
  WEFT_GPU Stateless Open(Gpu&, int64_t, int64_t, bool) const {
    return {};
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const Stateless&, const int64_t (&at)[K], int64_t unit, int step,
                    Total (&totals)[V]) const {
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      const int64_t position = unit + static_cast<int64_t>(k) * step;
      const auto value = ReadRanked<int64_t>(gpu, x, dtype, at[k], smallest != 0);
      totals[0] = Better(totals[0], {value, last != 0 ? kFromBehind - position : position});
    }
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t output, Total total) const {
    gpu.Global(y)[output] = last != 0 ? kFromBehind - total.position : total.position;
  }
};

// One at the first largest element of each line, zeros elsewhere.
template <typename T>
struct HardmaxSource {
  static constexpr int kPasses = 1;
  static constexpr int kWidth = kWidest<T>;
  template <int kPass>
  using Fold = BestFold<double>;
  template <int V>
  struct Item {
    Compute<T> values[V];
  };
  struct State {
    int64_t best = -1;
  };

  const T* x = nullptr;
  T* y = nullptr;

  template <class Gpu>
  WEFT_GPU State Open(Gpu&, int64_t) const {
    return {};
  }
  template <int V, class Gpu>
  WEFT_GPU Item<V> Load(Gpu& gpu, const State&, int64_t at, int64_t) const {
    const Packet<T, V> packet = gpu.template Load<V>(gpu.Global(x), at);
    Item<V> item;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) item.values[v] = Widen(packet.values[v]);
    return item;
  }
  template <int kPass, int V>
  WEFT_GPU void Add(const State&, Item<V>& item, int64_t position, Best<double>& total) const {
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      total = Better(total, {static_cast<double>(item.values[v]), position + v});
    }
  }
  template <int kPass>
  WEFT_GPU void Close(State& state, Best<double> total) const {
    state.best = total.position;
  }
  template <int V, class Gpu>
  WEFT_GPU void Write(Gpu& gpu, const State& state, const Item<V>&, int64_t at,
                      int64_t position) const {
    Packet<T, V> packet;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      packet.values[v] = Narrow<T>(Compute<T>(position + v == state.best ? 1 : 0));
    }
    gpu.template Store<V>(gpu.Global(y), at, packet);
  }
  template <class Gpu>
  WEFT_GPU void Leave(Gpu&, const State&, int64_t) const {}
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_ARG_EXTREME_BODY_H_
