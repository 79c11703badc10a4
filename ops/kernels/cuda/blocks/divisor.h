// Division of indices by numbers that are known at run time alone.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_DIVISOR_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_DIVISOR_H_

#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

// Quotient and rest of a division without a sign.
template <typename Index>
struct Division {
  Index quotient;
  Index rest;
};

// Divides indices by the same number again and again. The host makes it, bodies divide. Value type.
template <typename Index>
class FastDivisor;

// 32 bits: a product's high half, a sum and a shift. Figure 4.1 of Granlund and Montgomery,
// "Division by invariant integers using multiplication", PLDI 1994: with 2^(shift-1) < d <= 2^shift
// and m = floor(2^32 (2^shift - d) / d) + 1, floor(n / d) = (floor(m n / 2^32) + n) >> shift. The
// sum stays below 2^32, since n is below 2^31.
template <>
class FastDivisor<int32_t> {
 public:
  FastDivisor() = default;  // by 1
  // REQUIRES: divisor >= 1.
  explicit FastDivisor(int32_t divisor) : divisor_(static_cast<uint32_t>(divisor)) {
    while ((uint64_t{1} << shift_) < divisor_) ++shift_;
    const uint64_t excess = (uint64_t{1} << shift_) - divisor_;
    multiplier_ = static_cast<uint32_t>((excess << 32) / divisor_ + 1);
  }

  // REQUIRES: dividend >= 0.
  WEFT_GPU Division<int32_t> Divide(int32_t dividend) const {
    const auto n = static_cast<uint32_t>(dividend);
    const auto high = static_cast<uint32_t>((static_cast<uint64_t>(multiplier_) * n) >> 32);
    const uint32_t quotient = (high + n) >> shift_;
    return {static_cast<int32_t>(quotient), static_cast<int32_t>(n - quotient * divisor_)};
  }
  WEFT_GPU int32_t divisor() const { return static_cast<int32_t>(divisor_); }

 private:
  uint32_t divisor_ = 1;
  uint32_t multiplier_ = 1;
  uint32_t shift_ = 0;
};

// 64 bits: the division of the language, some hundred instructions.
template <>
class FastDivisor<int64_t> {
 public:
  FastDivisor() = default;  // by 1
  // REQUIRES: divisor >= 1.
  explicit FastDivisor(int64_t divisor) : divisor_(static_cast<uint64_t>(divisor)) {}

  // REQUIRES: dividend >= 0.
  WEFT_GPU Division<int64_t> Divide(int64_t dividend) const {
    const auto n = static_cast<uint64_t>(dividend);
    const uint64_t quotient = n / divisor_;
    return {static_cast<int64_t>(quotient), static_cast<int64_t>(n - quotient * divisor_)};
  }
  WEFT_GPU int64_t divisor() const { return static_cast<int64_t>(divisor_); }

 private:
  uint64_t divisor_ = 1;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_DIVISOR_H_
