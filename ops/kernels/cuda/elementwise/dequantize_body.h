// DequantizeBlocks: packed whole numbers as floats.
#ifndef WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_DEQUANTIZE_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_DEQUANTIZE_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/divisor.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// y[n, k] = (q - zero) * scale of k's block, or of the block that groups[k] names. Codes have kBits
// bits, 2, 4 or 8, and lie in bytes, low bits first; blocks and rows of zeros begin with a byte.
template <typename T, int kBits>
struct DequantizeBlocksBody {
  static constexpr int kPerByte = 8 / kBits;
  static constexpr int kCodes = 1 << kBits;
  // Codes that a thread turns into neighbours; as many as one store writes.
  static constexpr int kWidth = sizeof(T) == 8 ? 2 : 4;

  const uint8_t* q;
  const T* scales;
  const void* zeros;      // uint8_t if packed_zeros, else T; null: half of the codes
  const int32_t* groups;  // null: none
  T* y;
  int32_t count;    // of y
  int32_t packets;  // 0 with groups, or where columns and blocks are no multiples of kWidth
  int64_t columns;
  int64_t blocks;                      // of a row
  int64_t block_bytes;                 // of q
  int64_t zero_row_bytes;              // of packed zeros
  FastDivisor<int32_t> row_divisor;    // by columns
  FastDivisor<int32_t> block_divisor;  // by the block's size
  bool packed_zeros;
  FaultReport report;

  template <class Gpu>
  WEFT_GPU float ZeroOf(Gpu& gpu, int64_t row, int64_t block) const {
    if (zeros == nullptr) return static_cast<float>(kCodes / 2);
    if (!packed_zeros) {
      return static_cast<float>(
          Widen<T>(gpu.Global(static_cast<const T*>(zeros))[row * blocks + block]));
    }
    const uint8_t byte =
        gpu.Global(static_cast<const uint8_t*>(zeros))[row * zero_row_bytes + block / kPerByte];
    return static_cast<float>(CodeOf(byte, static_cast<int>(block % kPerByte)));
  }

  WEFT_GPU static int CodeOf(uint8_t byte, int place) {
    return (byte >> (place * kBits)) & (kCodes - 1);
  }

  // Elements [first, first + kCount) of y, which lie in one row and block.
  template <int kCount, class Gpu>
  WEFT_GPU Packet<T, kCount> Of(Gpu& gpu, int32_t first) const {
    const auto codes = gpu.Global(q);
    const auto scale_of = gpu.Global(scales);
    const Division<int32_t> at = row_divisor.Divide(first);
    const Division<int32_t> in = block_divisor.Divide(at.rest);
    const int64_t row = at.quotient;
    float scale = 0;
    float zero = 0;
    if (kCount > 1 || groups == nullptr) {
      scale = static_cast<float>(Widen<T>(scale_of[row * blocks + in.quotient]));
      zero = ZeroOf(gpu, row, in.quotient);
    }
    const int64_t bytes = (row * blocks + in.quotient) * block_bytes;
    Packet<T, kCount> out;
    WEFT_UNROLL
    for (int v = 0; v < kCount; ++v) {
      if (kCount == 1 && groups != nullptr) {
        const int32_t group = gpu.Global(groups)[at.rest + v];
        const bool is_block = InRange(gpu, report, group, at.rest + v);
        scale = is_block ? static_cast<float>(Widen<T>(scale_of[row * blocks + group])) : 0.0f;
        zero = is_block ? ZeroOf(gpu, row, group) : 0.0f;
      }
      const int32_t place = in.rest + v;
      const uint8_t byte = codes[bytes + place / kPerByte];
      const int code = CodeOf(byte, place % kPerByte);
      out.values[v] = Narrow<T>(static_cast<Compute<T>>((static_cast<float>(code) - zero) * scale));
    }
    return out;
  }

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(y);
    for (int64_t p = gpu.index(); p < packets; p += gpu.stride()) {
      gpu.Store(to, p * kWidth, Of<kWidth>(gpu, static_cast<int32_t>(p * kWidth)));
    }
    for (int64_t i = int64_t{packets} * kWidth + gpu.index(); i < count; i += gpu.stride()) {
      to[i] = Of<1>(gpu, static_cast<int32_t>(i)).values[0];
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_DEQUANTIZE_BODY_H_
