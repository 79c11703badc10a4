// Launch as nvcc sees it, on a stand-in for CUDA's language and runtime: needs no toolkit. A kernel
// is a plain function here, and a launch runs one thread of it.
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "gtest/gtest.h"

// ---- The stand-in, as far as headers of this folder use the language.

#define __CUDACC__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ thread_local
#define __align__(bytes) __attribute__((aligned(bytes)))

struct dim3 {
  explicit dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned x, y, z;
};
inline const dim3 threadIdx(0, 0, 0);
inline const dim3 blockIdx(0, 0, 0);
inline const dim3 blockDim(32);
inline const dim3 gridDim(1);
inline void __syncthreads() {}
inline void __syncwarp() {}
inline void __threadfence() {}
inline int __any_sync(unsigned /*lanes*/, int vote) { return vote; }
inline int __all_sync(unsigned /*lanes*/, int vote) { return vote; }
inline unsigned __ballot_sync(unsigned /*lanes*/, int vote) { return vote != 0 ? 1 : 0; }

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0, kInvalidValue = 1, kInvalidConfiguration = 9, kIllegal = 700 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

// What the runtime says, and what it was asked. cudaGetLastError gives `last_error` and forgets it.
struct RuntimeStandIn {
  cudaError_t last_error = cudaSuccess;
  cudaError_t of_launch = cudaSuccess;
  cudaError_t of_attribute = cudaSuccess;
  int launches = 0;
  dim3 blocks{0};
  dim3 threads{0};
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  int attribute_bytes = 0;
};
inline RuntimeStandIn runtime_stand_in;

inline cudaError_t cudaGetLastError() {
  return std::exchange(runtime_stand_in.last_error, cudaSuccess);
}
inline cudaError_t Reported(cudaError_t error) {
  if (error != cudaSuccess) runtime_stand_in.last_error = error;
  return error;
}
template <typename Body>
cudaError_t cudaLaunchKernel(void (*kernel)(Body), dim3 blocks, dim3 threads, void** parameters,
                             size_t shared_bytes, cudaStream_t stream) {
  RuntimeStandIn& runtime = runtime_stand_in;
  ++runtime.launches;
  runtime.blocks = blocks;
  runtime.threads = threads;
  runtime.shared_bytes = shared_bytes;
  runtime.stream = stream;
  if (runtime.of_launch == cudaSuccess) kernel(*static_cast<Body*>(parameters[0]));
  return Reported(runtime.of_launch);
}
template <typename Body>
cudaError_t cudaFuncSetAttribute(void (*)(Body), cudaFuncAttribute, int bytes) {
  runtime_stand_in.attribute_bytes = bytes;
  return Reported(runtime_stand_in.of_attribute);
}

#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

struct WritesItsNumber {
  int number;
  int* to;
  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    if (gpu.index() == 0) gpu.Global(to)[0] = number;
  }
};

class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest() { runtime_stand_in = {}; }

  int LaunchOn(const LaunchGrid& grid) {
    return Launch<256>({&stream_}, grid, WritesItsNumber{17, &written_});
  }

  int stream_ = 0;
  int written_ = 0;
};

TEST_F(LaunchTest, PassesGridStreamAndBody) {
  EXPECT_EQ(LaunchOn({.blocks = 3, .threads = 64, .blocks_y = 4, .blocks_z = 5, .shared_bytes = 6}),
            0);
  const RuntimeStandIn& runtime = runtime_stand_in;
  EXPECT_EQ(runtime.launches, 1);
  EXPECT_EQ(runtime.blocks.x, 3u);
  EXPECT_EQ(runtime.blocks.y, 4u);
  EXPECT_EQ(runtime.blocks.z, 5u);
  EXPECT_EQ(runtime.threads.x, 64u);
  EXPECT_EQ(runtime.shared_bytes, 6u);
  EXPECT_EQ(runtime.stream, &stream_);
  EXPECT_EQ(runtime.attribute_bytes, 0);
  EXPECT_EQ(written_, 17);
}

TEST_F(LaunchTest, AnErrorThatALibraryLeftIsNotItsOwn) {
  runtime_stand_in.last_error = kInvalidValue;
  EXPECT_EQ(LaunchOn({}), 0);
  EXPECT_EQ(written_, 17);
  EXPECT_EQ(cudaGetLastError(), kInvalidValue) << "the library may still ask for it";
}

TEST_F(LaunchTest, ItsOwnErrorIsSaidAndNotLeftForOthers) {
  runtime_stand_in.last_error = kIllegal;
  runtime_stand_in.of_launch = kInvalidConfiguration;
  EXPECT_EQ(LaunchOn({}), 9);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(LaunchTest, MuchSharedMemoryIsAskedFor) {
  EXPECT_EQ(LaunchOn({.shared_bytes = 100'000}), 0);
  EXPECT_EQ(runtime_stand_in.attribute_bytes, 100'000);
  EXPECT_EQ(runtime_stand_in.shared_bytes, 100'000u);
  runtime_stand_in = {};
  runtime_stand_in.of_attribute = kInvalidValue;
  EXPECT_EQ(LaunchOn({.shared_bytes = 100'000}), 1);
  EXPECT_EQ(runtime_stand_in.launches, 0);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(LaunchTest, AGridWithoutBlocksDoesNothing) {
  for (const LaunchGrid& grid :
       {LaunchGrid{.blocks = 0}, LaunchGrid{.blocks_y = 0}, LaunchGrid{.blocks_z = 0}}) {
    EXPECT_EQ(LaunchOn(grid), 0);
  }
  EXPECT_EQ(runtime_stand_in.launches, 0);
}

}  // namespace
}  // namespace weft::cuda
