// Where a launch goes, and how many threads it has. For factories, bodies and the emulator.
#ifndef WEFT_OPS_KERNELS_CUDA_LANGUAGE_LAUNCH_GRID_H_
#define WEFT_OPS_KERNELS_CUDA_LANGUAGE_LAUNCH_GRID_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace weft::cuda {

// The stream of a launch: Stream::native_handle(). A cudaStream_t, or a stream of the emulator.
struct LaunchQueue {
  void* stream = nullptr;
};

// `blocks` is at most 2^31 - 1, blocks_y and blocks_z at most 65535, threads at most 1024.
struct LaunchGrid {
  int64_t blocks = 1;
  int threads = 256;
  int64_t blocks_y = 1;
  int64_t blocks_z = 1;
  size_t shared_bytes = 0;  // of DynamicShared, for each block
};

// Shared memory that a block has without asking for more.
inline constexpr size_t kSharedWithoutAsking = 48 << 10;

// Blocks of `threads` for `count` elements, one thread for each, and at most `limit`: bodies that
// walk with index() and stride() take the rest in turns.
inline int64_t Blocks(int64_t count, int threads, int64_t limit = int64_t{1} << 20) {
  return std::min((count + threads - 1) / threads, limit);
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LANGUAGE_LAUNCH_GRID_H_
