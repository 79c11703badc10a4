// The order of ArgMax, TopK and their like: of elements with positions, which is the better one.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_BEST_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_BEST_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

// An element of a line and its position. Wide is of 8 bytes: double for floats, int64_t for whole
// numbers.
template <typename Wide>
struct Best {
  Wide value;
  int64_t position;  // -1: none
};

// Larger than any position.
inline constexpr int64_t kFromBehind = int64_t{1} << 62;

// A value whose order is that of the values, or with `smallest` the opposite one. NaN stays.
template <typename Wide>
WEFT_GPU Wide Ranked(Wide value, bool smallest) {
  if (!smallest) return value;
  if constexpr (std::is_integral_v<Wide>) {
    return static_cast<Wide>(~value);
  } else {
    return -value;
  }
}

// Whether a comes before b: NaN before numbers, the larger one, of equal ones the one with the
// smaller position. Position -1 comes after all.
template <typename Wide>
WEFT_GPU bool ComesBefore(const Best<Wide>& a, const Best<Wide>& b) {
  if (a.position < 0 || b.position < 0) return b.position < 0;
  const bool a_nan = a.value != a.value;
  const bool b_nan = b.value != b.value;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.value != b.value) return a.value > b.value;
  return a.position < b.position;
}

template <typename Wide>
WEFT_GPU Best<Wide> Better(Best<Wide> a, Best<Wide> b) {
  return ComesBefore(a, b) ? a : b;
}

template <typename Wide>
struct BestFold {
  using Total = Best<Wide>;
  static WEFT_GPU Total Initial() { return {Wide(0), -1}; }
  static WEFT_GPU Total Combine(Total a, Total b) { return Better(a, b); }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_BEST_H_
