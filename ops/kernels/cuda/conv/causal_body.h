// The body of CausalConvWithState.
#ifndef WEFT_OPS_KERNELS_CUDA_CONV_CAUSAL_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_CONV_CAUSAL_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/conv/causal_launch.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// A thread for each element of y and present: there are few taps.
template <typename T>
struct CausalConvBody {
  CausalConvCall of;

  template <class Gpu>
  WEFT_GPU Compute<T> Read(Gpu& gpu, const void* data, int64_t i) const {
    const T value = gpu.Global(static_cast<const T*>(data))[i];
    return Widen(value);
  }

  // Element i of the state followed by the input of a row.
  template <class Gpu>
  WEFT_GPU Compute<T> Extended(Gpu& gpu, int64_t row, int64_t i) const {
    const int64_t kept = of.taps - 1;
    if (i >= kept) return Read(gpu, of.x, row * of.length + i - kept);
    return of.past == nullptr ? Compute<T>(0) : Read(gpu, of.past, row * kept + i);
  }

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(static_cast<T*>(of.y));
    for (int64_t n = gpu.index(); n < of.rows * of.length; n += gpu.stride()) {
      const int64_t row = n / of.length;
      const int64_t t = n % of.length;
      const int64_t channel = row % of.channels;
      Compute<T> sum = of.bias == nullptr ? Compute<T>(0) : Read(gpu, of.bias, channel);
      for (int64_t k = 0; k < of.taps; ++k) {
        sum += Read(gpu, of.w, channel * of.taps + k) * Extended(gpu, row, t + k);
      }
      if (of.has_silu) sum = sum / (1 + std::exp(-sum));
      to[n] = Narrow<T>(sum);
    }
    if (of.present == nullptr) return;
    const auto state = gpu.Global(static_cast<T*>(of.present));
    const int64_t kept = of.taps - 1;
    for (int64_t n = gpu.index(); n < of.rows * kept; n += gpu.stride()) {
      state[n] = Narrow<T>(Extended(gpu, n / kept, of.length + n % kept));
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_CONV_CAUSAL_BODY_H_
