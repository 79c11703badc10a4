// Conversions between element types: functors for UnaryBody, by the rules of CastTensor.
#ifndef WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_CAST_OPS_H_
#define WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_CAST_OPS_H_

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

template <typename T>
inline constexpr T kLowestOf = std::numeric_limits<T>::min();
template <typename T>
inline constexpr T kHighestOf = std::numeric_limits<T>::max();

// `value` towards zero, NaN to 0, cut to the range of To.
template <typename To, typename From>
WEFT_GPU To Saturated(From value) {
  if (value != value) return 0;
  // The largest may round up to the next power of two; numbers below that are in the range.
  if (value <= static_cast<From>(kLowestOf<To>)) return kLowestOf<To>;
  if (value >= static_cast<From>(kHighestOf<To>)) return kHighestOf<To>;
  return static_cast<To>(value);
}

// A double as a float, of which rounding to a 16-bit float gives what rounding the double itself
// gives: cut off, with an odd last bit where something was lost. (Boldo and Melquiond, "Emulation
// of a FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE TC 57, 2008.)
WEFT_GPU float RoundedToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto back = static_cast<double>(nearest);
  if (back == value || value != value) return nearest;
  uint32_t bits;
  memcpy(&bits, &nearest, sizeof(bits));
  const bool is_beyond = value < 0 ? back < value : back > value;
  if (is_beyond) --bits;
  bits |= 1;
  float odd;
  memcpy(&odd, &bits, sizeof(odd));
  return odd;
}

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

// The result is narrowed to To by the body.
template <typename To>
struct CastOp {
  template <typename From>
  WEFT_GPU Compute<To> operator()(From value) const {
    if constexpr (kIsHalf<To> && !std::is_same_v<From, float> && sizeof(From) > 2) {
      return RoundedToOdd(static_cast<double>(value));
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
      if constexpr (sizeof(To) >= 4) return Saturated<To>(value);
      return static_cast<To>(Saturated<int32_t>(value));
    } else {
      return static_cast<Compute<To>>(value);
    }
  }
};

// 1 for all but zeros; NaN is true.
struct TruthOp {
  template <typename From>
  WEFT_GPU uint8_t operator()(From value) const {
    return value != 0 ? 1 : 0;
  }
};

// The nearest bfloat16 towards zero, as a float that is one.
struct CutOffOp {
  template <typename From>
  WEFT_GPU float operator()(From value) const {
    const auto single = static_cast<float>(value);
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    if (single != single) bits |= 0x00400000u;  // what makes it NaN may be among the bits that go
    bits &= 0xffff0000u;
    float cut;
    memcpy(&cut, &bits, sizeof(cut));
    return cut;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_CAST_OPS_H_
