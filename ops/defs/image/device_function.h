// Plain arithmetic that kernels of CPUs and of GPUs share.
#ifndef WEFT_OPS_DEFS_IMAGE_DEVICE_FUNCTION_H_
#define WEFT_OPS_DEFS_IMAGE_DEVICE_FUNCTION_H_

// Before a function that kernels of GPUs call, too. It uses nothing but arithmetic and <cmath>.
#ifdef __CUDACC__
#define WEFT_DEVICE_FUNCTION __host__ __device__ __forceinline__
#else
#define WEFT_DEVICE_FUNCTION inline
#endif

namespace weft {

// a * b, rounded by itself: compilers for GPUs would fuse it with a sum, and places near a border
// would be others than on CPUs.
template <typename T>
WEFT_DEVICE_FUNCTION T ProductAlone(T a, T b) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == sizeof(float)) {
    return __fmul_rn(a, b);
  } else {
    return __dmul_rn(a, b);
  }
#else
  return a * b;
#endif
}

}  // namespace weft

#endif  // WEFT_OPS_DEFS_IMAGE_DEVICE_FUNCTION_H_
