// The random numbers of platform/random.h in bodies: the same bits for the same key and place.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_PHILOX_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_PHILOX_H_

#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

// RandomKey::words().
struct PhiloxKey {
  uint32_t words[2] = {};
};

struct PhiloxBlock {
  uint32_t words[4];
};

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011) of the counter {low half of value, high half, use, 0}; `use` as in platform/random.cc.
WEFT_GPU PhiloxBlock PhiloxOf(PhiloxKey key, uint32_t use, uint64_t value) {
  uint32_t c0 = static_cast<uint32_t>(value);
  uint32_t c1 = static_cast<uint32_t>(value >> 32);
  uint32_t c2 = use;
  uint32_t c3 = 0;
  uint32_t k0 = key.words[0];
  uint32_t k1 = key.words[1];
  WEFT_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

// RandomKey::Block(index).
WEFT_GPU PhiloxBlock BlockOf(PhiloxKey key, uint64_t index) { return PhiloxOf(key, 0, index); }

// RandomKey::Fold(value).
WEFT_GPU PhiloxKey FoldOf(PhiloxKey key, uint64_t value) {
  const auto block = PhiloxOf(key, 1, value);
  return {{block.words[0], block.words[1]}};
}

// The words of places [place, place + kCount), four to a block.
template <int kCount>
struct PhiloxWords {
  static_assert(kCount == 1 || kCount == 4);
  uint32_t words[kCount];

  WEFT_GPU static PhiloxWords At(PhiloxKey key, uint64_t place) {
    PhiloxWords result;
    const auto first = BlockOf(key, place / 4);
    const auto shift = static_cast<int>(place % 4);
    if constexpr (kCount == 1) {
      result.words[0] = Pick(shift, first.words[0], first.words[1], first.words[2], first.words[3]);
    } else if (shift == 0) {
      for (int v = 0; v < 4; ++v) result.words[v] = first.words[v];
    } else {
      const auto next = BlockOf(key, place / 4 + 1);
      const uint32_t all[8] = {first.words[0], first.words[1], first.words[2], first.words[3],
                               next.words[0],  next.words[1],  next.words[2],  next.words[3]};
      WEFT_UNROLL
      for (int v = 0; v < 4; ++v) {
        result.words[v] = Pick(shift, all[v], all[v + 1], all[v + 2], all[v + 3]);
      }
    }
    return result;
  }

 private:
  // Without an array that is indexed at run time.
  WEFT_GPU static uint32_t Pick(int which, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return which == 0 ? a : which == 1 ? b : which == 2 ? c : d;
  }
};

// FillUniform's number of a word, in [0, 1).
WEFT_GPU float UniformOf(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_PHILOX_H_
