// 16-bit floats as numbers, and functions of real numbers, for bodies.
#ifndef WEFT_OPS_KERNELS_CUDA_LANGUAGE_SCALAR_H_
#define WEFT_OPS_KERNELS_CUDA_LANGUAGE_SCALAR_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "tensor/dtype.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace weft::cuda {

// The type that elements of T are computed in: float for 16-bit floats, else T itself.
template <typename T>
struct ComputeType {
  using Type = T;
};
template <>
struct ComputeType<Float16> {
  using Type = float;
};
template <>
struct ComputeType<Bfloat16> {
  using Type = float;
};
template <typename T>
using Compute = typename ComputeType<T>::Type;

// An element as a number to compute with. Exact.
template <typename T>
WEFT_GPU Compute<T> Widen(T value) {
  return value;
}
#ifdef __CUDACC__
template <>
WEFT_GPU float Widen(Float16 value) {
  return __half2float(__half(__half_raw{value.bits}));
}
template <>
WEFT_GPU float Widen(Bfloat16 value) {
  return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{value.bits}));
}
#else
template <>
WEFT_GPU float Widen(Float16 value) {
  return ToFloat(value);
}
template <>
WEFT_GPU float Widen(Bfloat16 value) {
  return ToFloat(value);
}
#endif

// A computed number as an element, rounded to nearest even.
template <typename T>
WEFT_GPU T Narrow(Compute<T> value) {
  return value;
}
#ifdef __CUDACC__
template <>
WEFT_GPU Float16 Narrow<Float16>(float value) {
  return Float16{__half_raw(__float2half_rn(value)).x};
}
template <>
WEFT_GPU Bfloat16 Narrow<Bfloat16>(float value) {
  return Bfloat16{__nv_bfloat16_raw(__float2bfloat16_rn(value)).x};
}
#else
template <>
WEFT_GPU Float16 Narrow<Float16>(float value) {
  return ToFloat16(value);
}
template <>
WEFT_GPU Bfloat16 Narrow<Bfloat16>(float value) {
  return ToBfloat16(value);
}
#endif

// Products and sums that are rounded one by one: nvcc would fuse a * b + c into one rounding. What
// must have the bits of the CPU is made of these.
template <typename T>
WEFT_GPU T RoundedProduct(T a, T b) {
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
template <typename T>
WEFT_GPU T RoundedSum(T a, T b) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == sizeof(float)) {
    return __fadd_rn(a, b);
  } else {
    return __dadd_rn(a, b);
  }
#else
  return a + b;
#endif
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LANGUAGE_SCALAR_H_
