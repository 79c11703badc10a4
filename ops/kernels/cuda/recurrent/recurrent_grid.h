// The grid of a launch over the elements of a state.
#ifndef WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_GRID_H_
#define WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_GRID_H_

#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/recurrent/recurrent_launch.h"

namespace weft::cuda {

// Small blocks: a state is small, and its threads are to reach many multiprocessors.
inline constexpr int kCellThreads = 128;

template <class Body>
int LaunchCells(LaunchQueue queue, const RecurrentSteps& steps, const Body& body) {
  return Launch<kCellThreads>(
      queue, {.blocks = Blocks(steps.elements(), kCellThreads), .threads = kCellThreads}, body);
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_GRID_H_
