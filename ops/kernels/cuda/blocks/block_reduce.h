// Sums and extremes over the threads of a warp or block. The order is fixed: the same bits each
// time.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_BLOCK_REDUCE_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_BLOCK_REDUCE_H_

#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

struct Plus {
  template <typename T>
  WEFT_GPU T operator()(T a, T b) const {
    return a + b;
  }
};

// The larger one; NaN if one is NaN.
struct Larger {
  template <typename T>
  WEFT_GPU T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};

// `combine` over the values of a warp's 32 threads, for each of them: pairs at distance 16, 8,
// ... 1. `combine` is commutative.
template <class Gpu, typename T, typename Combine>
WEFT_GPU T WarpReduce(Gpu& gpu, T value, Combine combine) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    value = combine(value, gpu.ShuffleXor(value, mask));
  }
  return value;
}

// The same over the block, for each of its threads, whose number is a multiple of 32. `identity`
// changes nothing when combined. Uses shared memory kId; ends with a barrier, so it can be called
// again at once with the same one.
template <int kId, class Gpu, typename T, typename Combine>
WEFT_GPU T BlockReduce(Gpu& gpu, T value, T identity, Combine combine) {
  const auto shared = gpu.template Shared<kId, T, kWarp>();
  value = WarpReduce(gpu, value, combine);
  if (gpu.lane() == 0) shared[gpu.warp()] = value;
  gpu.Barrier();
  value = gpu.lane() < gpu.warps() ? static_cast<T>(shared[gpu.lane()]) : identity;
  gpu.Barrier();
  return WarpReduce(gpu, value, combine);
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_BLOCK_REDUCE_H_
