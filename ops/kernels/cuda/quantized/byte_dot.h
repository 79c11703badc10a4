// Words of four bytes that belong to four neighbours of a sum.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_DOT_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_DOT_H_

#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

// Four times 128: turns the codes of uint8 into those of int8 that are smaller by 128.
inline constexpr uint32_t kFlipBytes = 0x80808080u;
// Four times 1: ByteDot with it is the sum of the bytes.
inline constexpr uint32_t kOneBytes = 0x01010101u;

WEFT_GPU uint32_t ByteOfWord(uint32_t word, int byte) { return (word >> (8 * byte)) & 0xffu; }

// sum + the products of the bytes of both words as int8, modulo 2^32: one instruction of a GPU
// (dp4a).
WEFT_GPU uint32_t ByteDot(uint32_t a, uint32_t b, uint32_t sum) {
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(
      __dp4a(static_cast<int>(a), static_cast<int>(b), static_cast<int>(sum)));
#else
  for (int i = 0; i < 4; ++i) {
    const int32_t product = static_cast<int32_t>(static_cast<int8_t>(ByteOfWord(a, i))) *
                            static_cast<int32_t>(static_cast<int8_t>(ByteOfWord(b, i)));
    sum += static_cast<uint32_t>(product);
  }
  return sum;
#endif
}

// columns[c] has byte c of each of the rows: a square of 16 bytes turned over.
WEFT_GPU void TransposeBytes(const uint32_t (&rows)[4], uint32_t (&columns)[4]) {
  WEFT_UNROLL
  for (int c = 0; c < 4; ++c) {
    columns[c] = ByteOfWord(rows[0], c) | ByteOfWord(rows[1], c) << 8 |
                 ByteOfWord(rows[2], c) << 16 | ByteOfWord(rows[3], c) << 24;
  }
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_DOT_H_
