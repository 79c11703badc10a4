// Launches bodies. In a .cu file alone, which nvcc compiles for GPUs and g++ for the emulator.
#ifndef WEFT_OPS_KERNELS_CUDA_LANGUAGE_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_LANGUAGE_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/launch_grid.h"

#ifndef __CUDACC__
// Defined by ops/testing/emulator/emulated_launch.h, which emulated builds include first.
namespace weft::testing {
template <typename Body>
int EmulateLaunch(void* stream, const cuda::LaunchGrid& grid, int max_threads, const Body& body);
}  // namespace weft::testing
#endif

namespace weft::cuda {

#ifdef __CUDACC__

// Blocks that a multiprocessor must have room for. One is enough: else ptxas spills to reach an
// occupancy of its own choice. A body that waits for memory asks for more by a constant kMinBlocks:
// for compute capability 9.0 ptxas keeps what it is passed in registers, twice as many as for 8.0.
template <typename Body>
inline constexpr int kMinBlocksOf = 1;
template <typename Body>
requires requires { Body::kMinBlocks; }
inline constexpr int kMinBlocksOf<Body> = Body::kMinBlocks;

template <int kMaxThreads, typename Body>
__global__ __launch_bounds__(kMaxThreads,
                             kMinBlocksOf<Body>) void RunBody(const __grid_constant__ Body body) {
  CudaGpu gpu;
  body(gpu);
}

// Runs `body` on the grid, after what is on the queue; does not wait. A grid without blocks does
// nothing. 0, or CUDA's error number of this very launch: cudaGetLastError() may be what a library
// of NVIDIA's left, so it is neither asked nor left with ours. REQUIRES: grid.threads <=
// kMaxThreads; a body is at most 4 KiB of values that can be copied byte by byte.
template <int kMaxThreads, typename Body>
int Launch(LaunchQueue queue, const LaunchGrid& grid, const Body& body) {
  static_assert(std::is_trivially_copyable_v<Body> && sizeof(Body) <= 4096);
  if (grid.blocks == 0 || grid.blocks_y == 0 || grid.blocks_z == 0) return 0;
  cudaError_t code = cudaSuccess;
  if (grid.shared_bytes > kSharedWithoutAsking) {
    code = cudaFuncSetAttribute(RunBody<kMaxThreads, Body>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(grid.shared_bytes));
  }
  if (code == cudaSuccess) {
    const dim3 blocks(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.blocks_y),
                      static_cast<unsigned>(grid.blocks_z));
    void* parameters[] = {const_cast<Body*>(&body)};  // CUDA copies it
    code = cudaLaunchKernel(RunBody<kMaxThreads, Body>, blocks,
                            dim3(static_cast<unsigned>(grid.threads)), parameters,
                            grid.shared_bytes, static_cast<cudaStream_t>(queue.stream));
  }
  if (code != cudaSuccess) cudaGetLastError();  // forgets it
  return static_cast<int>(code);
}

#else

template <int kMaxThreads, typename Body>
int Launch(LaunchQueue queue, const LaunchGrid& grid, const Body& body) {
  return weft::testing::EmulateLaunch(queue.stream, grid, kMaxThreads, body);
}

#endif  // __CUDACC__

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LANGUAGE_LAUNCH_H_
