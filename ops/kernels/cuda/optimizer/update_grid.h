// Grids and packets of the bodies of this folder, for its .cu files.
#ifndef WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_GRID_H_
#define WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_GRID_H_

#include <algorithm>
#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

inline constexpr int kUpdateThreads = 256;
// Two rounds of the blocks that fill 132 multiprocessors: factors are made once per block.
inline constexpr int64_t kUpdateBlocks = int64_t{132} * 8 * 2;

inline bool HasPackets(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

// For `packets` of `width` elements and the elements of `count` that are left; no blocks for none.
inline LaunchGrid UpdateGrid(int64_t count, int64_t packets, int width) {
  const int64_t threads = std::max(packets, count - packets * width);
  return {.blocks = Blocks(threads, kUpdateThreads, kUpdateBlocks), .threads = kUpdateThreads};
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_GRID_H_
