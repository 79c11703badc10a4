// Bodies that find ranges. The largest magnitude is that of the bits of floats without a sign, as
// whole numbers: an atomic maximum gives the same in any order, and NaN is above all.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_RANGE_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_RANGE_BODY_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/kernels/cuda/blocks/block_reduce.h"
#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

WEFT_GPU uint32_t MagnitudeBits(float x) {
  uint32_t pattern = 0;
  memcpy(&pattern, &x, sizeof(pattern));
  return pattern & 0x7fffffffu;
}
WEFT_GPU float MagnitudeOf(uint32_t pattern) {
  float x = 0;
  memcpy(&x, &pattern, sizeof(x));
  return x;
}
// 0 for NaN and what is below.
WEFT_GPU float OrZero(float x) { return x > 0 ? x : 0.0f; }

// A whole number as uint8, cut at its ends; 0 for NaN.
WEFT_GPU uint32_t Uint8Code(float whole) {
  const float number = !(whole >= 0) ? 0.0f : whole > 255.0f ? 255.0f : whole;
  return static_cast<uint32_t>(static_cast<int32_t>(number));
}

struct LargerBits {
  WEFT_GPU uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

// Zeros.
struct ClearBody {
  uint32_t* y;
  int64_t count;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(y);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) to[i] = 0;
  }
};

// range[0] and range[1], which begin at 0, become the magnitudes of the lowest and the highest of
// all elements and 0; both NaN where one element is.
struct ExtremesBody {
  const float* x;
  uint32_t* range;
  int64_t count;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(x);
    uint32_t low = 0;
    uint32_t high = 0;
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const float value = from[i];
      const uint32_t magnitude = MagnitudeBits(value);
      if (!(value >= 0)) low = LargerBits()(low, magnitude);
      if (!(value <= 0)) high = LargerBits()(high, magnitude);
    }
    low = BlockReduce<0>(gpu, low, 0u, LargerBits());
    high = BlockReduce<1>(gpu, high, 0u, LargerBits());
    if (gpu.thread() == 0) {
      gpu.AtomicMax(gpu.Global(range), 0, low);
      gpu.AtomicMax(gpu.Global(range), 1, high);
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_RANGE_BODY_H_
