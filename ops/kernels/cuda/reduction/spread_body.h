// BroadcastReduced and ElementCount.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_SPREAD_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_SPREAD_BODY_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/reduction/spread_launch.h"

namespace weft::cuda {

// big[i] = small[where i came from] / divisor. V elements at a time, which come from V neighbours
// or from one.
template <typename T, int V>
struct SpreadBody {
  SpreadPlan plan;
  const T* small = nullptr;
  T* big = nullptr;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(small);
    const auto to = gpu.Global(big);
    for (int64_t i = gpu.index(); i < plan.packets; i += gpu.stride()) {
      const int64_t at = plan.index.Offset(i);
      Packet<T, V> packet;
      if (plan.repeats != 0) {
        const T value = from[at];
        const T share = Divided(value);
        WEFT_UNROLL
        for (int v = 0; v < V; ++v) packet.values[v] = share;
      } else {
        packet = gpu.template Load<V>(from, at);
        WEFT_UNROLL
        for (int v = 0; v < V; ++v) packet.values[v] = Divided(packet.values[v]);
      }
      gpu.template Store<V>(to, i * V, packet);
    }
  }

 private:
  WEFT_GPU T Divided(T value) const {
    if constexpr (std::is_integral_v<T>) {
      const int64_t whole = static_cast<int64_t>(plan.divisor);
      if (whole == 1) return value;
      if (whole == 0) return T(0);
      if constexpr (std::is_unsigned_v<T>) {
        return static_cast<T>(static_cast<uint64_t>(value) / static_cast<uint64_t>(whole));
      }
      return static_cast<T>(static_cast<int64_t>(value) / whole);
    } else {
      return Narrow<T>(Widen(value) / static_cast<Compute<T>>(plan.divisor));
    }
  }
};

// One element, the same each time.
template <typename T>
struct ConstantBody {
  int64_t value = 0;
  T* y = nullptr;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    if (gpu.index() == 0) gpu.Global(y)[0] = Narrow<T>(static_cast<Compute<T>>(value));
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_SPREAD_BODY_H_
