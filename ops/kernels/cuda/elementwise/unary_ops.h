// Functions of one element: functors for UnaryBody. Formulas are those of the CPU's kernels
// (ops/kernels/cpu/elementwise). C is float, double or a whole number.
#ifndef WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_UNARY_OPS_H_
#define WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_UNARY_OPS_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/kernels/cuda/elementwise/elementwise_launch.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// x < 0, which compilers warn of where there is no sign.
template <typename C>
WEFT_GPU bool IsNegative(C x) {
  if constexpr (std::is_unsigned_v<C>) {
    return false;
  } else {
    return x < 0;
  }
}

// A functor without parameters, of an expression of x, whose type is C.
#define WEFT_UNARY_OP(name, expression)  \
  struct name {                          \
    template <typename C>                \
    WEFT_GPU C operator()(C x) const {   \
      return static_cast<C>(expression); \
    }                                    \
  }

// The same, of what models seldom ask for.
#define WEFT_RARE_OP(name, expression)    \
  struct name {                           \
    static constexpr bool kIsRare = true; \
    template <typename C>                 \
    WEFT_GPU C operator()(C x) const {    \
      return static_cast<C>(expression);  \
    }                                     \
  }

WEFT_UNARY_OP(CopyOp, x);

// ---- Numbers. Whole ones wrap around.

struct NegOp {
  template <typename C>
  WEFT_GPU C operator()(C x) const {
    if constexpr (std::is_integral_v<C>)
      return static_cast<C>(uint64_t{0} - static_cast<uint64_t>(x));
    return -x;
  }
};

struct AbsOp {
  template <typename C>
  WEFT_GPU C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>) return std::abs(x);
    return IsNegative(x) ? NegOp()(x) : x;
  }
};

WEFT_UNARY_OP(SignOp, x > 0 ? C{1} : IsNegative(x) ? static_cast<C>(-1) : x);
WEFT_UNARY_OP(ReluOp, IsNegative(x) ? C{0} : x);
WEFT_UNARY_OP(BitwiseNotOp, ~x);
WEFT_UNARY_OP(NotOp, x == 0);

struct IsNanOp {
  template <typename C>
  WEFT_GPU uint8_t operator()(C x) const {
    return x != x ? 1 : 0;
  }
};

struct IsInfOp {
  FunctionParameters p;  // a: finds negative ones, b: positive ones
  template <typename C>
  WEFT_GPU uint8_t operator()(C x) const {
    return std::isinf(x) && (x < 0 ? p.a : p.b) != 0 ? 1 : 0;
  }
};

// x + bias below -threshold, x - bias above it, 0 between. Whole numbers are computed in double,
// cut off and wrap around.
struct ShrinkOp {
  FunctionParameters p;  // a: bias, b: threshold
  template <typename C>
  WEFT_GPU C operator()(C x) const {
    using Wide = std::conditional_t<std::is_integral_v<C>, double, C>;
    const auto value = static_cast<Wide>(x);
    const auto bias = static_cast<Wide>(p.a);
    const auto threshold = static_cast<Wide>(p.b);
    if (value < -threshold) return Back<C>(value + bias);
    if (value > threshold) return Back<C>(value - bias);
    return x != x ? x : C{0};
  }

 private:
  template <typename C, typename Wide>
  WEFT_GPU static C Back(Wide value) {
    if constexpr (std::is_integral_v<C>) {
      constexpr double kLimit = 9.2e18;
      const double cut = value < -kLimit ? -kLimit : value > kLimit ? kLimit : value;
      return static_cast<C>(static_cast<int64_t>(cut));
    }
    return static_cast<C>(value);
  }
};

// NaN stays.
template <typename C>
struct BetweenOp {
  C low;
  C high;
  WEFT_GPU C operator()(C x) const {
    const C value = x < low ? low : x;
    return value > high ? high : value;
  }
};

// The ends of a type: infinite where it has that.
template <typename C>
inline constexpr C kHighEnd = std::numeric_limits<C>::has_infinity
                                  ? std::numeric_limits<C>::infinity()
                                  : std::numeric_limits<C>::max();
template <typename C>
inline constexpr C kLowEnd = std::numeric_limits<C>::has_infinity
                                 ? -kHighEnd<C>
                                 : std::numeric_limits<C>::lowest();

// The bounds lie on the device.
template <typename T>
struct ClipOp {
  const T* low;   // null: none
  const T* high;  // null: none
  template <class Gpu>
  WEFT_GPU BetweenOp<Compute<T>> Bind(Gpu& gpu) const {
    BetweenOp<Compute<T>> between{kLowEnd<Compute<T>>, kHighEnd<Compute<T>>};
    if (low != nullptr) between.low = Widen<T>(gpu.Global(low)[0]);
    if (high != nullptr) between.high = Widen<T>(gpu.Global(high)[0]);
    return between;
  }
};

// ---- Functions of real numbers.

WEFT_UNARY_OP(ExpOp, std::exp(x));
WEFT_UNARY_OP(LogOp, std::log(x));
WEFT_UNARY_OP(SqrtOp, std::sqrt(x));
WEFT_UNARY_OP(ReciprocalOp, 1 / x);
WEFT_UNARY_OP(ErfOp, std::erf(x));
WEFT_UNARY_OP(SinOp, std::sin(x));
WEFT_UNARY_OP(CosOp, std::cos(x));
WEFT_RARE_OP(TanOp, std::tan(x));
WEFT_RARE_OP(AsinOp, std::asin(x));
WEFT_RARE_OP(AcosOp, std::acos(x));
WEFT_RARE_OP(AtanOp, std::atan(x));
WEFT_RARE_OP(SinhOp, std::sinh(x));
WEFT_RARE_OP(CoshOp, std::cosh(x));
WEFT_RARE_OP(AsinhOp, std::asinh(x));
WEFT_RARE_OP(AcoshOp, std::acosh(x));
WEFT_RARE_OP(AtanhOp, std::atanh(x));
WEFT_UNARY_OP(CeilOp, std::ceil(x));
WEFT_UNARY_OP(FloorOp, std::floor(x));
// Halves go to the even neighbour.
WEFT_UNARY_OP(RoundOp, std::nearbyint(x));

#undef WEFT_RARE_OP
#undef WEFT_UNARY_OP

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_UNARY_OPS_H_
