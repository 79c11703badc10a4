// The grid of a launch over the elements of a state.
#ifndef WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_GRID_H_
#define WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_GRID_H_

#include <cstdint>

#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {

// A thread for each element. Small blocks: a state is small, and its threads are to reach many
// multiprocessors.
inline constexpr int kCellThreads = 128;

template <class Body>
int LaunchCells(LaunchQueue queue, int64_t elements, const Body& body) {
  return Launch<kCellThreads>(
      queue, {.blocks = Blocks(elements, kCellThreads), .threads = kCellThreads}, body);
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_GRID_H_
