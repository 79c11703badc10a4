// Activations, PRelu and Clip.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

#include "ops/kernels/cpu/blocks/elementwise_map.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/elementwise/activation_simd.h"

namespace weft::cpu {
namespace {

// A factory for an activation of float types: float32 through `op`, the others element by element
// through `fn`, which gets the parameters as well.
template <typename Fn>
KernelFactory Activation(ActivationOp op,
                         std::function<ActivationParameters(const Attributes&)> parameters_of,
                         Fn fn) {
  return [=](const PrepareContext& context) {
    const int64_t elements = context.OutputShape(0).num_elements();
    const ActivationParameters p = parameters_of(context.attributes());
    return PrepareByDType(context, context.InputDType(0), FloatTypes(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            using T = decltype(zero);
                            if constexpr (std::is_same_v<T, float>) {
                              return MakeFloatActivation(op, p, elements, context.threads());
                            } else {
                              using C = ComputeType<T>;
                              return MakeMap<T, T>(elements, context.threads(),
                                                   kScalarFunctionNanoseconds,
                                                   [p, fn](C x) -> C { return fn(x, p); });
                            }
                          });
  };
}

ActivationParameters None(const Attributes&) { return {}; }

// alpha with this default.
auto Alpha(float fallback) {
  return [fallback](const Attributes& attributes) {
    return ActivationParameters{attributes.Float("alpha", fallback)};
  };
}

template <typename C>
C Unit(C x) {
  return x < 0 ? C{0} : x > 1 ? C{1} : x;
}

template <typename C>
C Softplus(C x) {
  return (x > 0 ? x : C{0}) + std::log1p(std::exp(-std::abs(x)));
}

// Elu, Celu and Selu are one function of three parameters.
struct EluElement {
  template <typename C>
  C operator()(C x, const ActivationParameters& p) const {
    return x < 0 ? static_cast<C>(p.a) * std::expm1(static_cast<C>(p.b) * x)
                 : static_cast<C>(p.c) * x;
  }
};

ActivationParameters EluParameters(const Attributes& attributes) {
  return {attributes.Float("alpha", 1), 1, 1};
}
ActivationParameters CeluParameters(const Attributes& attributes) {
  const float alpha = attributes.Float("alpha", 1);
  return {alpha, 1 / alpha, 1};
}
ActivationParameters SeluParameters(const Attributes& attributes) {
  const float alpha = attributes.Float("alpha", 1.67326319217681884765625f);
  const float gamma = attributes.Float("gamma", 1.05070102214813232421875f);
  return {alpha * gamma, 1, gamma};
}
ActivationParameters HardSigmoidParameters(const Attributes& attributes) {
  return {attributes.Float("alpha", 0.2f), attributes.Float("beta", 0.5f)};
}

using P = ActivationParameters;

WEFT_REGISTER_KERNEL("", "LeakyRelu", DeviceKind::kCpu,
                     Activation(ActivationOp::kLeakyRelu, Alpha(0.01f), [](auto x, const P& p) {
                       return x < 0 ? static_cast<decltype(x)>(p.a) * x : x;
                     }));
WEFT_REGISTER_KERNEL("", "Elu", DeviceKind::kCpu,
                     Activation(ActivationOp::kElu, EluParameters, EluElement()));
WEFT_REGISTER_KERNEL("", "Celu", DeviceKind::kCpu,
                     Activation(ActivationOp::kElu, CeluParameters, EluElement()));
WEFT_REGISTER_KERNEL("", "Selu", DeviceKind::kCpu,
                     Activation(ActivationOp::kElu, SeluParameters, EluElement()));
WEFT_REGISTER_KERNEL("", "HardSigmoid", DeviceKind::kCpu,
                     Activation(ActivationOp::kHardSigmoid, HardSigmoidParameters,
                                [](auto x, const P& p) {
                                  using C = decltype(x);
                                  return Unit(static_cast<C>(p.a) * x + static_cast<C>(p.b));
                                }));
WEFT_REGISTER_KERNEL("", "HardSwish", DeviceKind::kCpu,
                     Activation(ActivationOp::kHardSwish, None, [](auto x, const P&) {
                       using C = decltype(x);
                       return x * Unit(x / C{6} + C{0.5});
                     }));
WEFT_REGISTER_KERNEL("", "Softplus", DeviceKind::kCpu,
                     Activation(ActivationOp::kSoftplus, None,
                                [](auto x, const P&) { return Softplus(x); }));
WEFT_REGISTER_KERNEL("", "Softsign", DeviceKind::kCpu,
                     Activation(ActivationOp::kSoftsign, None,
                                [](auto x, const P&) { return x / (1 + std::abs(x)); }));
WEFT_REGISTER_KERNEL("", "Mish", DeviceKind::kCpu,
                     Activation(ActivationOp::kMish, None,
                                [](auto x, const P&) { return x * std::tanh(Softplus(x)); }));
WEFT_REGISTER_KERNEL("", "Swish", DeviceKind::kCpu,
                     Activation(ActivationOp::kSwish, Alpha(1), [](auto x, const P& p) {
                       return x / (1 + std::exp(-static_cast<decltype(x)>(p.a) * x));
                     }));
WEFT_REGISTER_KERNEL("", "ThresholdedRelu", DeviceKind::kCpu,
                     Activation(ActivationOp::kThresholdedRelu, Alpha(1), [](auto x, const P& p) {
                       using C = decltype(x);
                       return x <= static_cast<C>(p.a) ? C{0} : x;
                     }));

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGelu(const PrepareContext& context) {
  if (context.attributes().String("approximate", "none") == "tanh") {
    return Activation(ActivationOp::kTanhGelu, None, [](auto x, const P&) {
      using C = decltype(x);
      const C scale = static_cast<C>(0.79788456080286535588);  // sqrt(2 / pi)
      return x / 2 * (1 + std::tanh(scale * (x + static_cast<C>(0.044715) * x * x * x)));
    })(context);
  }
  return Activation(ActivationOp::kGelu, None, [](auto x, const P&) {
    using C = decltype(x);
    return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<C>));
  })(context);
}
WEFT_REGISTER_KERNEL("", "Gelu", DeviceKind::kCpu, Widened(PrepareGelu));

// ---- Shrink: whole numbers, too, computed in double and cut off.

// A double as a C; whole numbers wrap around.
template <typename C>
C FromDouble(double value) {
  if constexpr (std::is_integral_v<C>) {
    constexpr double kLimit = 9.2e18;
    return static_cast<C>(static_cast<int64_t>(std::clamp(value, -kLimit, kLimit)));
  }
  return static_cast<C>(value);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareShrink(const PrepareContext& context) {
  const double bias = context.attributes().Float("bias", 0);
  const double threshold = context.attributes().Float("lambd", 0.5f);
  const int64_t elements = context.OutputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), NumericTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          using C = ComputeType<T>;
                          return MakeMap<T, T>(elements, context.threads(), 1.0, [=](C x) -> C {
                            const double value = static_cast<double>(x);
                            if (value < -threshold) return FromDouble<C>(value + bias);
                            if (value > threshold) return FromDouble<C>(value - bias);
                            return value != value ? x : C{0};
                          });
                        });
}
WEFT_REGISTER_KERNEL("", "Shrink", DeviceKind::kCpu, PrepareShrink);

// ---- PRelu.

absl::StatusOr<std::unique_ptr<Kernel>> PreparePRelu(const PrepareContext& context) {
  return PrepareByDType(context, context.InputDType(0), NumericTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          using C = ComputeType<T>;
                          return MakeMapOfTwo<T, T, T>(
                              PlanOfTwo(context), context.threads(), 0.5, [](C x, C slope) -> C {
                                return x < 0 ? static_cast<C>(x * slope) : x;
                              });
                        });
}
WEFT_REGISTER_KERNEL("", "PRelu", DeviceKind::kCpu, PreparePRelu);

// ---- Clip: a missing bound is the end of the type.

template <typename C>
constexpr C Lowest() {
  if constexpr (std::numeric_limits<C>::has_infinity) return -std::numeric_limits<C>::infinity();
  return std::numeric_limits<C>::lowest();
}
template <typename C>
constexpr C Highest() {
  if constexpr (std::numeric_limits<C>::has_infinity) return std::numeric_limits<C>::infinity();
  return std::numeric_limits<C>::max();
}

template <typename T>
std::unique_ptr<Kernel> MakeClip(int64_t elements, bool has_low, bool has_high, int threads) {
  return MakeKernel([=](const KernelContext& context) {
    using C = ComputeType<T>;
    const T* x = Input<T>(context, 0);
    T* out = Output<T>(context, 0);
    const C low = has_low ? Load(*Input<T>(context, 1)) : Lowest<C>();
    const C high = has_high ? Load(*Input<T>(context, 2)) : Highest<C>();
    ParallelFor(threads, elements, kArithmeticNanoseconds, kElementGrain,
                [&](int64_t begin, int64_t end) {
                  if constexpr (std::is_same_v<T, float>) {
                    ClipFloat(low, high, x + begin, out + begin, end - begin);
                  } else {
                    for (int64_t i = begin; i < end; ++i) {
                      const C value = Load(x[i]) < low ? low : Load(x[i]);
                      out[i] = Store<T>(value > high ? high : value);
                    }
                  }
                });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareClip(const PrepareContext& context) {
  for (const int i : {1, 2}) {
    if (context.HasInput(i) && context.InputShape(i).num_elements() != 1) {
      return context.InvalidArgument("a bound must have one element");
    }
  }
  const int64_t elements = context.OutputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), NumericTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeClip<decltype(zero)>(elements, context.HasInput(1),
                                                          context.HasInput(2), context.threads());
                        });
}
WEFT_REGISTER_KERNEL("", "Clip", DeviceKind::kCpu, PrepareClip);

}  // namespace
}  // namespace weft::cpu
