// Sources of the normalizations of rows (ops/kernels/cuda/blocks/line_body.h). Sum: the type of
// sums over a row.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/blocks/line_body.h"
#include "ops/kernels/cuda/blocks/number_item.h"
#include "ops/kernels/cuda/normalization/normalize_calls.h"

namespace weft::cuda {

// The sum over an item of (x - centre)^2.
template <typename Sum, typename T, int V>
WEFT_GPU Sum SumOfSquares(const NumberItem<T, V>& item, Compute<T> centre) {
  Compute<T> sum = 0;
  WEFT_UNROLL
  for (int v = 0; v < V; ++v) {
    const Compute<T> deviation = item.values[v] - centre;
    sum += deviation * deviation;
  }
  return static_cast<Sum>(sum);
}

template <typename C, typename Sum>
WEFT_GPU C InverseDeviation(Sum squares, int64_t count, double epsilon) {
  const C variance = static_cast<C>(squares / static_cast<Sum>(count));
  return C(1) / std::sqrt(variance + static_cast<C>(epsilon));
}

// Two passes: the mean, then the squared distances from it. RMS has the second one alone.
template <typename T, bool kRms, typename Sum>
struct NormalizeSource {
  using C = Compute<T>;
  static constexpr int kPasses = kRms ? 1 : 2;
  static constexpr int kWidth = kWidest<T>;
  template <int kPass>
  using Fold = SumFold<Sum>;
  template <int V>
  using Item = NumberItem<T, V>;
  struct State {
    C mean = 0;
    C inverse = 0;
    int64_t parameter = 0;  // of the row's first element
  };

  NormalizeOperands<T> operands;
  int64_t size = 1;  // of a row

  template <class Gpu>
  WEFT_GPU State Open(Gpu&, int64_t row) const {
    State state;
    if (operands.plane != 0) {
      const int64_t group = row % operands.groups;
      state.parameter = operands.per_group != 0 ? group : group * operands.channels;
    }
    return state;
  }
  template <int V, class Gpu>
  WEFT_GPU Item<V> Load(Gpu& gpu, const State&, int64_t at, int64_t) const {
    return LoadNumbers<V>(gpu, operands.x, at);
  }
  template <int kPass, int V>
  WEFT_GPU void Add(const State& state, Item<V>& item, int64_t, Sum& total) const {
    if constexpr (kPass == 0 && !kRms) {
      C sum = 0;
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) sum += item.values[v];
      total += static_cast<Sum>(sum);
    } else {
      total += SumOfSquares<Sum>(item, state.mean);
    }
  }
  template <int kPass>
  WEFT_GPU void Close(State& state, Sum total) const {
    if constexpr (kPass == 0 && !kRms) {
      state.mean = static_cast<C>(total / static_cast<Sum>(size));
    } else {
      state.inverse = InverseDeviation<C>(total, size, operands.epsilon);
    }
  }
  template <int V, class Gpu>
  WEFT_GPU void Write(Gpu& gpu, const State& state, const Item<V>& item, int64_t at,
                      int64_t position) const {
    Item<V> scale;
    Item<V> bias;
    if (operands.plane == 0) {
      scale = LoadNumbers<V>(gpu, operands.scale, position);
      if (operands.bias != nullptr) bias = LoadNumbers<V>(gpu, operands.bias, position);
    } else {
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) {
        const int64_t i = state.parameter + ChannelOf(position + v);
        scale.values[v] = LoadNumbers<1>(gpu, operands.scale, i).values[0];
        bias.values[v] = LoadNumbers<1>(gpu, operands.bias, i).values[0];
      }
    }
    Item<V> result;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      result.values[v] = (item.values[v] - state.mean) * state.inverse * scale.values[v];
      if (operands.bias != nullptr) result.values[v] += bias.values[v];
    }
    StoreNumbers<V>(gpu, operands.y, at, result);
  }
  template <class Gpu>
  WEFT_GPU void Leave(Gpu& gpu, const State& state, int64_t row) const {
    if (operands.mean.data != nullptr) {
      WriteReal(gpu, operands.mean, row, static_cast<double>(state.mean));
    }
    if (operands.inverse.data != nullptr) {
      WriteReal(gpu, operands.inverse, row, static_cast<double>(state.inverse));
    }
  }

 private:
  // The channel of an element of a row, counted in its group. Rows of groups have less than 2^31
  // elements.
  WEFT_GPU int64_t ChannelOf(int64_t position) const {
    if (operands.per_group != 0) return 0;
    return operands.by_plane.Divide(static_cast<int32_t>(position)).quotient;
  }
};

// Scale and y have types of their own, and scale may be broadcast.
template <typename T>
struct MixedRmsSource {
  using C = Compute<T>;
  static constexpr int kPasses = 1;
  static constexpr int kWidth = 1;
  template <int kPass>
  using Fold = SumFold<double>;
  template <int V>
  using Item = NumberItem<T, V>;
  struct State {
    double inverse = 0;
  };

  MixedRmsOperands<T> operands;
  int64_t size = 1;

  template <class Gpu>
  WEFT_GPU State Open(Gpu&, int64_t) const {
    return {};
  }
  template <int V, class Gpu>
  WEFT_GPU Item<V> Load(Gpu& gpu, const State&, int64_t at, int64_t) const {
    return LoadNumbers<V>(gpu, operands.x, at);
  }
  template <int kPass, int V>
  WEFT_GPU void Add(const State&, Item<V>& item, int64_t, double& total) const {
    total += SumOfSquares<double>(item, C(0));
  }
  template <int kPass>
  WEFT_GPU void Close(State& state, double total) const {
    state.inverse = InverseDeviation<double>(total, size, operands.epsilon);
  }
  template <int V, class Gpu>
  WEFT_GPU void Write(Gpu& gpu, const State& state, const Item<V>& item, int64_t at,
                      int64_t position) const {
    const double scale = ReadReal(gpu, operands.scale, operands.of_scale.Offset(position));
    WriteReal(gpu, operands.y, at, static_cast<double>(item.values[0]) * state.inverse * scale);
  }
  template <class Gpu>
  WEFT_GPU void Leave(Gpu&, const State&, int64_t) const {}
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_BODY_H_
