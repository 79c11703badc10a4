// Grids of the bodies of this folder, for its .cu files.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_QUANTIZED_GRID_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_QUANTIZED_GRID_H_

#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

inline constexpr int kQuantizedThreads = 256;
// Some rounds of the blocks that fill the largest cards; threads walk where there is more.
inline constexpr int64_t kQuantizedBlocks = int64_t{8} * 160 * 4;

// Threads for `count` pieces of work.
inline LaunchGrid QuantizedGrid(int64_t count) {
  return {.blocks = Blocks(count, kQuantizedThreads, kQuantizedBlocks),
          .threads = kQuantizedThreads};
}

inline bool AllowsPackets(const void* address, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) == 0;
}

// Elements that int32_t counts.
inline bool HasShortIndices(int64_t count) { return count < (int64_t{1} << 31); }

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_QUANTIZED_GRID_H_
