// Elements of any number type as values whose order is theirs.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_RANKED_NUMBER_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_RANKED_NUMBER_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/blocks/any_number.h"
#include "ops/kernels/cuda/blocks/best.h"

namespace weft::cuda {

// Element i of `data`, or with `smallest` a value of the opposite order. Rank is double for floats,
// and for whole numbers int64_t: uint64 in two's complement is in order once its top bit is turned.
template <typename Rank, class Gpu>
WEFT_GPU Rank ReadRanked(Gpu& gpu, const void* data, DType dtype, int64_t i, bool smallest) {
  const AnyNumber number = ReadAny(gpu, data, dtype, i);
  if constexpr (std::is_same_v<Rank, double>) {
    return Ranked(number.real, smallest);
  } else {
    const uint64_t turned = number.is_signed ? 0 : uint64_t{1} << 63;
    return Ranked(static_cast<int64_t>(number.whole ^ turned), smallest);
  }
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_RANKED_NUMBER_H_
