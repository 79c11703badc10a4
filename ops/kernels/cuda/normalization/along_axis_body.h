// LpNormalization and LRN.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_ALONG_AXIS_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_ALONG_AXIS_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/blocks/line_body.h"
#include "ops/kernels/cuda/blocks/number_item.h"
#include "ops/kernels/cuda/normalization/along_axis_launch.h"

namespace weft::cuda {

template <typename T>
struct LpSource {
  using C = Compute<T>;
  static constexpr int kPasses = 1;
  static constexpr int kWidth = kWidest<T>;
  template <int kPass>
  using Fold = SumFold<double>;
  template <int V>
  using Item = NumberItem<T, V>;
  struct State {
    double factor = 0;
  };

  const T* x = nullptr;
  T* y = nullptr;
  int32_t squares = 1;

  template <class Gpu>
  WEFT_GPU State Open(Gpu&, int64_t) const {
    return {};
  }
  template <int V, class Gpu>
  WEFT_GPU Item<V> Load(Gpu& gpu, const State&, int64_t at, int64_t) const {
    return LoadNumbers<V>(gpu, x, at);
  }
  template <int kPass, int V>
  WEFT_GPU void Add(const State&, Item<V>& item, int64_t, double& total) const {
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      const double value = static_cast<double>(item.values[v]);
      total += squares != 0 ? value * value : std::fabs(value);
    }
  }
  template <int kPass>
  WEFT_GPU void Close(State& state, double total) const {
    const double norm = squares != 0 ? std::sqrt(total) : total;
    state.factor = norm == 0 ? 0.0 : 1.0 / norm;
  }
  template <int V, class Gpu>
  WEFT_GPU void Write(Gpu& gpu, const State& state, const Item<V>& item, int64_t at,
                      int64_t) const {
    Item<V> result;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      result.values[v] = static_cast<C>(static_cast<double>(item.values[v]) * state.factor);
    }
    StoreNumbers<V>(gpu, y, at, result);
  }
  template <class Gpu>
  WEFT_GPU void Leave(Gpu&, const State&, int64_t) const {}
};

// x / (bias + factor * the sum of squares of the channels around)^beta: Krizhevsky, Sutskever and
// Hinton, ImageNet Classification (2012), section 3.3. A thread per element.
template <typename T>
struct LrnBody {
  using C = Compute<T>;

  LrnPlan plan;
  const T* x = nullptr;
  T* y = nullptr;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t i = gpu.index(); i < plan.elements; i += gpu.stride()) {
      const int64_t channel = i / plan.plane % plan.channels;
      int64_t first = -plan.before;
      if (first < -channel) first = -channel;
      int64_t last = plan.after;
      if (last > plan.channels - 1 - channel) last = plan.channels - 1 - channel;
      C sum = 0;
      for (int64_t k = first; k <= last; ++k) {
        const C value = LoadNumbers<1>(gpu, x, i + k * plan.plane).values[0];
        sum += value * value;
      }
      const C base = static_cast<C>(plan.bias) + static_cast<C>(plan.factor) * sum;
      const C own = LoadNumbers<1>(gpu, x, i).values[0];
      gpu.Global(y)[i] = Narrow<T>(own / std::pow(base, static_cast<C>(plan.beta)));
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_ALONG_AXIS_BODY_H_
