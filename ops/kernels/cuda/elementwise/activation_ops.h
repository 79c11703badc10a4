// Activations and their slopes: functors for UnaryBody and BinaryBody. C is float or double.
#ifndef WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_ACTIVATION_OPS_H_
#define WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_ACTIVATION_OPS_H_

#include <cmath>

#include "ops/kernels/cuda/elementwise/elementwise_launch.h"
#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

inline constexpr double kSqrtHalf = 0.70710678118654752440;
inline constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
inline constexpr double kOneOverSqrtTwoPi = 0.39894228040143267794;
inline constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
inline constexpr double kGeluCubic = 0.044715;

// Without overflow of the exponential.
template <typename C>
WEFT_GPU C Logistic(C x) {
  const C e = std::exp(-std::abs(x));
  return (x >= 0 ? C{1} : e) / (1 + e);
}

template <typename C>
WEFT_GPU C SoftplusOf(C x) {
  return (x > 0 ? x : C{0}) + std::log1p(std::exp(-std::abs(x)));
}

// x cut to [0, 1].
template <typename C>
WEFT_GPU C UnitOf(C x) {
  return x < 0 ? C{0} : x > 1 ? C{1} : x;
}

// A functor of an expression of x, the parameters p, and C.
#define WEFT_ACTIVATION_OP(name, expression) \
  struct name {                              \
    FunctionParameters p;                    \
    template <typename C>                    \
    WEFT_GPU C operator()(C x) const {       \
      return static_cast<C>(expression);     \
    }                                        \
  }

WEFT_ACTIVATION_OP(LeakyReluOp, x < 0 ? static_cast<C>(p.a) * x : x);
WEFT_ACTIVATION_OP(EluOp, x < 0 ? static_cast<C>(p.a) * std::expm1(static_cast<C>(p.b) * x)
                                : static_cast<C>(p.c) * x);
WEFT_ACTIVATION_OP(HardSigmoidOp, UnitOf(static_cast<C>(p.a) * x + static_cast<C>(p.b)));
WEFT_ACTIVATION_OP(HardSwishOp, x* UnitOf(x / 6 + C{0.5}));
WEFT_ACTIVATION_OP(SoftplusOp, SoftplusOf(x));
WEFT_ACTIVATION_OP(SoftsignOp, x / (1 + std::abs(x)));
WEFT_ACTIVATION_OP(MishOp, x* std::tanh(SoftplusOf(x)));
WEFT_ACTIVATION_OP(SwishOp, x / (1 + std::exp(-static_cast<C>(p.a) * x)));
WEFT_ACTIVATION_OP(ThresholdedReluOp, x <= static_cast<C>(p.a) ? C{0} : x);
WEFT_ACTIVATION_OP(GeluOp, x / 2 * (1 + std::erf(x * static_cast<C>(kSqrtHalf))));
WEFT_ACTIVATION_OP(TanhGeluOp, x / 2 *
                                   (1 + std::tanh(static_cast<C>(kSqrtTwoOverPi) *
                                                  (x + static_cast<C>(kGeluCubic) * x * x * x))));
WEFT_ACTIVATION_OP(SigmoidOp, Logistic(x));
WEFT_ACTIVATION_OP(TanhOp, std::tanh(x));

#undef WEFT_ACTIVATION_OP

// ---- Slopes: dx of dy and x, or of dy and y = f(x).

// A functor of an expression of dy, v, which is x or y, and C.
#define WEFT_SLOPE_OP(name, expression)      \
  struct name {                              \
    template <typename C>                    \
    WEFT_GPU C operator()(C dy, C v) const { \
      return static_cast<C>(expression);     \
    }                                        \
  }

WEFT_SLOPE_OP(ReluGradOp, v > 0 ? dy : C{0});
WEFT_SLOPE_OP(SigmoidGradOp, dy* v*(1 - v));
WEFT_SLOPE_OP(TanhGradOp, dy*(1 - v) * (1 + v));
WEFT_SLOPE_OP(ErfGradOp, dy* static_cast<C>(kTwoOverSqrtPi) * std::exp(-v * v));

#undef WEFT_SLOPE_OP

// dy (Phi(x) + x phi(x)), with the standard normal distribution and its density.
struct GeluGradOp {
  template <typename C>
  WEFT_GPU C operator()(C dy, C x) const {
    const C density = static_cast<C>(kOneOverSqrtTwoPi) * std::exp(C{-0.5} * x * x);
    const C distribution = C{0.5} * (1 + std::erf(x * static_cast<C>(kSqrtHalf)));
    return dy * (distribution + x * density);
  }
};

// dy (s + x s (1 - s) 2 u'), s = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3). Beyond 30, s is
// 0 or 1 to the last bit; squares of what is larger could overflow.
struct TanhGeluGradOp {
  template <typename C>
  WEFT_GPU C operator()(C dy, C x) const {
    const C v = x > 30 ? C{30} : x < -30 ? C{-30} : x;
    const C twice = static_cast<C>(2 * kSqrtTwoOverPi);
    const C cubic = static_cast<C>(kGeluCubic);
    const C s = Logistic(twice * v * (1 + cubic * v * v));
    return dy * (s + v * s * (1 - s) * twice * (1 + 3 * cubic * v * v));
  }
};

// dy (s + x s (1 - s)), s = sigmoid(x).
struct SwishGradOp {
  template <typename C>
  WEFT_GPU C operator()(C dy, C x) const {
    const C s = Logistic(x);
    return dy * (s + x * s * (1 - s));
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_ACTIVATION_OPS_H_
