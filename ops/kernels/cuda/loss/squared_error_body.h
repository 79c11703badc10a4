// Squared errors and their gradient.
#ifndef WEFT_OPS_KERNELS_CUDA_LOSS_SQUARED_ERROR_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_LOSS_SQUARED_ERROR_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/fold_body.h"
#include "ops/kernels/cuda/blocks/number_item.h"
#include "ops/kernels/cuda/loss/squared_error_launch.h"

namespace weft::cuda {

template <typename T>
struct SquaredErrorSource {
  using Total = double;
  static constexpr int kWidth = kWidest<T>;
  template <int V>
  using State = Stateless;

  double divisor = 1;
  const T* a = nullptr;
  const T* b = nullptr;
  T* y = nullptr;

  static WEFT_GPU Total Initial() { return 0; }
  static WEFT_GPU Total Combine(Total first, Total second) { return first + second; }
  template <int V, class Gpu>
  WEFT_GPU Stateless Open(Gpu&, int64_t, int64_t, bool) const {
    return {};
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const Stateless&, const int64_t (&at)[K], int64_t, int,
                    Total (&totals)[V]) const {
    NumberItem<T, V> from[K];
    NumberItem<T, V> to[K];
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      from[k] = LoadNumbers<V>(gpu, a, at[k]);
      to[k] = LoadNumbers<V>(gpu, b, at[k]);
    }
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      Compute<T> sum = 0;
      WEFT_UNROLL
      for (int k = 0; k < K; ++k) {
        const Compute<T> difference = from[k].values[v] - to[k].values[v];
        sum += difference * difference;
      }
      totals[v] += static_cast<double>(sum);
    }
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t, Total total) const {
    gpu.Global(y)[0] = Narrow<T>(static_cast<Compute<T>>(total / divisor));
  }
};

template <typename T, int V>
struct SquaredErrorGradBody {
  int64_t packets = 0;
  const T* dy = nullptr;
  const T* a = nullptr;
  const T* b = nullptr;
  T* da = nullptr;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    if (gpu.index() >= packets) return;
    const Compute<T> factor = 2 * LoadNumbers<1>(gpu, dy, 0).values[0];
    for (int64_t i = gpu.index(); i < packets; i += gpu.stride()) {
      const NumberItem<T, V> from = LoadNumbers<V>(gpu, a, i * V);
      const NumberItem<T, V> to = LoadNumbers<V>(gpu, b, i * V);
      NumberItem<T, V> result;
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) result.values[v] = (from.values[v] - to.values[v]) * factor;
      StoreNumbers<V>(gpu, da, i * V, result);
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LOSS_SQUARED_ERROR_BODY_H_
