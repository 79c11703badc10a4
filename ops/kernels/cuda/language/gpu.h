// What a kernel body sees of the GPU. A body is a functor of plain values:
//
//   template <class Gpu> WEFT_GPU void operator()(Gpu& gpu) const;
//
// A Gpu is one thread of a launch. CudaGpu below is one of a real GPU; the emulator of the tests
// (ops/testing/emulator/) has another, which offers the same and checks each access:
//
//   int thread(), threads()            number in the block, threads of the block
//   int lane(), warp(), warps()        number in the warp of 32, number of the warp, warps of the
//   block int64_t block(), blocks()          number in the grid, along x; block_y(), block_z()
//   along others int64_t index(), stride()          number of the thread in the grid, threads of
//   the grid (x alone)
//
//   auto p = gpu.Global(pointer)       an argument of the launch as memory: p[i] reads and writes,
//                                      p + n is such memory from element n on
//   Packet<T, N> gpu.Load<N>(p, i)     elements i to i + N; p + i is a multiple of N * sizeof(T)
//   gpu.Store<N>(p, i, packet)
//   auto s = gpu.Shared<kId, T, kCount>()   memory of the block, uninitialised; kId tells arrays of
//                                           one body apart
//   auto s = gpu.DynamicShared<T>(byte)     the same, from LaunchGrid::shared_bytes
//
//   gpu.Barrier()                      all threads of the block meet; memory is in order after it
//   gpu.WarpBarrier()                  the same of a warp
//   T gpu.Shuffle(v, lane), ShuffleXor(v, mask), ShuffleDown(v, delta), ShuffleUp(v, delta)
//                                      the value of another thread of the warp; one's own where
//                                      that thread does not exist
//   bool gpu.Any(b), gpu.All(b); uint32_t gpu.Ballot(b)      votes of the warp
//
//   T gpu.AtomicAdd(p, i, v), AtomicMax, AtomicMin, AtomicExchange, AtomicOr
//   T gpu.AtomicCompareExchange(p, i, expected, desired)
//                                      on p[i], of int32_t, uint32_t and int64_t, uint64_t; return
//                                      what was there
//   gpu.Fence()                        what this thread wrote is seen by all before what it writes
//                                      later
//
// A block has a multiple of 32 threads where its body shuffles or votes.
#ifndef WEFT_OPS_KERNELS_CUDA_LANGUAGE_GPU_H_
#define WEFT_OPS_KERNELS_CUDA_LANGUAGE_GPU_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/language/packet.h"

#ifdef __CUDACC__
#define WEFT_GPU __host__ __device__ __forceinline__
#else
#define WEFT_GPU inline
#endif

// Before a loop whose steps nvcc writes out for a GPU, so that what it indexes lies in registers.
#ifdef __CUDA_ARCH__
#define WEFT_UNROLL _Pragma("unroll")
#else
#define WEFT_UNROLL
#endif

namespace weft::cuda {

inline constexpr int kWarp = 32;

#ifdef __CUDACC__

// One thread of a real GPU.
class CudaGpu {
 public:
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ int lane() const { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ int warp() const { return static_cast<int>(threadIdx.x) / kWarp; }
  __device__ int warps() const { return (static_cast<int>(blockDim.x) + kWarp - 1) / kWarp; }
  __device__ int64_t block() const { return blockIdx.x; }
  __device__ int64_t block_y() const { return blockIdx.y; }
  __device__ int64_t block_z() const { return blockIdx.z; }
  __device__ int64_t blocks() const { return gridDim.x; }
  __device__ int64_t index() const {
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  }
  __device__ int64_t stride() const { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

  template <typename T>
  __device__ T* Global(T* pointer) const {
    return pointer;
  }
  template <int N, typename T>
  __device__ Packet<Plain<T>, N> Load(T* memory, int64_t i) const {
    return *reinterpret_cast<const Packet<Plain<T>, N>*>(memory + i);
  }
  template <int N, typename T>
  __device__ void Store(T* memory, int64_t i, const Packet<T, N>& packet) const {
    *reinterpret_cast<Packet<T, N>*>(memory + i) = packet;
  }
  template <int kId, typename T, int kCount>
  __device__ T* Shared() const {
    __shared__ T memory[kCount];
    return memory;
  }
  template <typename T>
  __device__ T* DynamicShared(size_t byte) const {
    extern __shared__ __align__(128) unsigned char dynamic_shared[];
    return reinterpret_cast<T*>(dynamic_shared + byte);
  }

  __device__ void Barrier() const { __syncthreads(); }
  __device__ void WarpBarrier() const { __syncwarp(); }
  __device__ void Fence() const { __threadfence(); }

  template <typename T>
  __device__ T Shuffle(T value, int lane) const {
    return __shfl_sync(kAll, value, lane);
  }
  template <typename T>
  __device__ T ShuffleXor(T value, int mask) const {
    return __shfl_xor_sync(kAll, value, mask);
  }
  template <typename T>
  __device__ T ShuffleDown(T value, int delta) const {
    return __shfl_down_sync(kAll, value, static_cast<unsigned>(delta));
  }
  template <typename T>
  __device__ T ShuffleUp(T value, int delta) const {
    return __shfl_up_sync(kAll, value, static_cast<unsigned>(delta));
  }
  __device__ bool Any(bool value) const { return __any_sync(kAll, value) != 0; }
  __device__ bool All(bool value) const { return __all_sync(kAll, value) != 0; }
  __device__ uint32_t Ballot(bool value) const { return __ballot_sync(kAll, value); }

  template <typename T>
  __device__ T AtomicAdd(T* memory, int64_t i, T value) const {
    return static_cast<T>(atomicAdd(Native(memory + i), static_cast<NativeOf<T>>(value)));
  }
  template <typename T>
  __device__ T AtomicMax(T* memory, int64_t i, T value) const {
    return static_cast<T>(atomicMax(Signed(memory + i), static_cast<SignedOf<T>>(value)));
  }
  template <typename T>
  __device__ T AtomicMin(T* memory, int64_t i, T value) const {
    return static_cast<T>(atomicMin(Signed(memory + i), static_cast<SignedOf<T>>(value)));
  }
  template <typename T>
  __device__ T AtomicExchange(T* memory, int64_t i, T value) const {
    return static_cast<T>(atomicExch(Native(memory + i), static_cast<NativeOf<T>>(value)));
  }
  template <typename T>
  __device__ T AtomicOr(T* memory, int64_t i, T value) const {
    return static_cast<T>(atomicOr(Native(memory + i), static_cast<NativeOf<T>>(value)));
  }
  template <typename T>
  __device__ T AtomicCompareExchange(T* memory, int64_t i, T expected, T desired) const {
    return static_cast<T>(atomicCAS(Native(memory + i), static_cast<NativeOf<T>>(expected),
                                    static_cast<NativeOf<T>>(desired)));
  }

 private:
  static constexpr unsigned kAll = 0xffffffffU;

  // The types that CUDA has these functions for: two's complement sums do not know the sign.
  template <typename T>
  struct NativeType;
  template <typename T>
  using NativeOf = typename NativeType<T>::Unsigned;
  template <typename T>
  using SignedOf = typename NativeType<T>::Own;
  template <typename T>
  __device__ static NativeOf<T>* Native(T* memory) {
    return reinterpret_cast<NativeOf<T>*>(memory);
  }
  template <typename T>
  __device__ static SignedOf<T>* Signed(T* memory) {
    return reinterpret_cast<SignedOf<T>*>(memory);
  }
};

template <>
struct CudaGpu::NativeType<int32_t> {
  using Unsigned = unsigned;
  using Own = int;
};
template <>
struct CudaGpu::NativeType<uint32_t> {
  using Unsigned = unsigned;
  using Own = unsigned;
};
template <>
struct CudaGpu::NativeType<int64_t> {
  using Unsigned = unsigned long long;
  using Own = long long;
};
template <>
struct CudaGpu::NativeType<uint64_t> {
  using Unsigned = unsigned long long;
  using Own = unsigned long long;
};

#endif  // __CUDACC__

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LANGUAGE_GPU_H_
