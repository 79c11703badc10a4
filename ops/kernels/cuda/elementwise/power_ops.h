// Powers, whose exponents may have another type than their bases: functors for BinaryBody.
#ifndef WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_POWER_OPS_H_
#define WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_POWER_OPS_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/kernels/cuda/elementwise/cast_ops.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Base and exponent of one floating type. Squares are what models ask for most.
struct PowOp {
  template <typename C>
  WEFT_GPU C operator()(C base, C exponent) const {
    return exponent == 2 ? base * base : std::pow(base, exponent);
  }
};

// base^exponent by squaring, wrapping around; a negative exponent leaves 0 but for 1 and -1.
template <typename T>
WEFT_GPU T WholePower(T base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  uint64_t power = 1;
  auto factor = static_cast<uint64_t>(base);
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power *= factor;
    factor *= factor;
  }
  return static_cast<T>(power);
}

// Elements of T to exponents of another type, which is known at run time: the body reads their
// bits.
template <typename T>
struct MixedPowOp {
  static constexpr bool kIsRare = true;
  DType exponents;

  template <typename C, typename Bits>
  WEFT_GPU Compute<T> operator()(C base, Bits exponent) const {
    if constexpr (sizeof(Bits) == 1) {
      if (exponents == DType::kInt8) return Of(base, static_cast<int64_t>(As<int8_t>(exponent)));
      return Of(base, static_cast<int64_t>(exponent));
    } else if constexpr (sizeof(Bits) == 2) {
      if (exponents == DType::kFloat16) return Of(base, double{Widen<Float16>({exponent})});
      if (exponents == DType::kBfloat16) return Of(base, double{Widen<Bfloat16>({exponent})});
      if (exponents == DType::kInt16) return Of(base, static_cast<int64_t>(As<int16_t>(exponent)));
      return Of(base, static_cast<int64_t>(exponent));
    } else if constexpr (sizeof(Bits) == 4) {
      if (exponents == DType::kFloat32) return Of(base, double{As<float>(exponent)});
      if (exponents == DType::kInt32) return Of(base, static_cast<int64_t>(As<int32_t>(exponent)));
      return Of(base, static_cast<int64_t>(exponent));
    } else {
      if (exponents == DType::kFloat64) return Of(base, As<double>(exponent));
      if (exponents == DType::kUint64 && !std::is_integral_v<T>) {
        return Of(base, static_cast<double>(exponent));
      }
      return Of(base, As<int64_t>(exponent));
    }
  }

 private:
  template <typename To, typename Bits>
  WEFT_GPU static To As(Bits bits) {
    static_assert(sizeof(To) == sizeof(Bits));
    To value;
    memcpy(&value, &bits, sizeof(value));
    return value;
  }
  template <typename C>
  WEFT_GPU static Compute<T> Of(C base, int64_t exponent) {
    if constexpr (std::is_integral_v<T>) {
      return WholePower<T>(base, exponent);
    } else {
      return Of(base, static_cast<double>(exponent));
    }
  }
  // In double, rounded once; cut to the range of whole numbers.
  template <typename C>
  WEFT_GPU static Compute<T> Of(C base, double exponent) {
    const auto wide = static_cast<double>(base);
    const double power = exponent == 2 ? wide * wide : std::pow(wide, exponent);
    if constexpr (std::is_integral_v<T>) {
      return Saturated<T>(power);
    } else {
      return static_cast<Compute<T>>(power);
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_POWER_OPS_H_
