// The body of Einsum's sums.
#ifndef WEFT_OPS_KERNELS_CUDA_LINEAR_EINSUM_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_LINEAR_EINSUM_BODY_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/blocks/block_reduce.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/linear/einsum_launch.h"

namespace weft::cuda {

// A warp for each output. Floats are added in double.
template <typename T>
struct AxisSumBody {
  using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

  AxisSumCall call;
  const T* x;
  T* y;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    const int64_t warps = gpu.stride() / kWarp;
    for (int64_t o = gpu.index() / kWarp; o < call.outputs; o += warps) {
      const int64_t base = call.kept.Offset(o);
      Sum sum = 0;
      for (int64_t a = gpu.lane(); a < call.addends; a += kWarp) {
        const T value = from[base + call.summed.Offset(a)];
        sum += static_cast<Sum>(Widen(value));
      }
      sum = WarpReduce(gpu, sum, Plus());
      if (gpu.lane() == 0) to[o] = Narrow<T>(static_cast<Compute<T>>(sum));
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LINEAR_EINSUM_BODY_H_
