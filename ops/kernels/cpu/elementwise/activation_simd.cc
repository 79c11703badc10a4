#include "ops/kernels/cpu/elementwise/activation_simd.h"

#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/elementwise/activation_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

using D = FloatTag;
using V = FloatVector;

// max(0, min(1, v)), with NaN kept.
HWY_INLINE V ToUnit(D d, V v) {
  return KeepNan(v, hn::Max(hn::Zero(d), hn::Min(hn::Set(d, 1.0f), v)));
}

// ln(1 + e^x) without overflow: max(x, 0) + ln(1 + e^-|x|).
HWY_INLINE V Softplus(D d, V x) {
  const V tail = hn::Log1p(d, Exp(d, hn::Neg(hn::Abs(x))));
  return KeepNan(x, hn::Add(hn::Max(x, hn::Zero(d)), tail));
}

// a (e^(b x) - 1) below zero, c x above.
HWY_INLINE V Elu(D d, V x, const ActivationParameters& p) {
  const V exponent = hn::Min(hn::Mul(hn::Set(d, p.b), x), hn::Zero(d));
  // Expm1 of Highway is exact near zero but not asked beyond the underflow of e^x.
  const V negative = hn::Mul(hn::Set(d, p.a), hn::Expm1(d, hn::Max(exponent, hn::Set(d, -80.0f))));
  const V positive = hn::Mul(hn::Set(d, p.c), x);
  return KeepNan(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), negative, positive));
}

HWY_INLINE V TanhGelu(D d, V x) {
  const V cubic = hn::MulAdd(hn::Mul(hn::Set(d, 0.044715f), x), hn::Mul(x, x), x);
  // (1 + tanh u) / 2 = 1 / (1 + e^-2u): one exponential, and no cancellation below zero.
  return hn::Mul(x, Sigmoid(d, hn::Mul(hn::Set(d, 1.595769122f), cubic)));  // 2 sqrt(2 / pi)
}

void Steps(ActivationOp op, const float* x, float* out, size_t n) {
  switch (op) {
    case ActivationOp::kCeil:
      return MapOne(x, out, n, [](D, V v) HWY_ATTR { return hn::Ceil(v); });
    case ActivationOp::kFloor:
      return MapOne(x, out, n, [](D, V v) HWY_ATTR { return hn::Floor(v); });
    default:
      return MapOne(x, out, n, [](D, V v) HWY_ATTR { return hn::Round(v); });
  }
}

void Smooth(ActivationOp op, const ActivationParameters& p, const float* x, float* out, size_t n) {
  switch (op) {
    case ActivationOp::kElu:
      return MapOne(x, out, n, [&](D d, V v) HWY_ATTR { return Elu(d, v, p); });
    case ActivationOp::kSoftplus:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR { return Softplus(d, v); });
    case ActivationOp::kMish:
      return MapOne(x, out, n,
                    [](D d, V v) HWY_ATTR { return hn::Mul(v, Tanh(d, Softplus(d, v))); });
    case ActivationOp::kSwish:
      return MapOne(x, out, n, [&](D d, V v) HWY_ATTR {
        return hn::Mul(v, Sigmoid(d, hn::Mul(hn::Set(d, p.a), v)));
      });
    case ActivationOp::kGelu:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR {
        const V erf = Erf(d, hn::Mul(v, hn::Set(d, 0.70710678f)));
        return hn::Mul(hn::Mul(hn::Set(d, 0.5f), v), hn::Add(hn::Set(d, 1.0f), erf));
      });
    default:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR { return TanhGelu(d, v); });
  }
}

void Activate(ActivationOp op, const ActivationParameters& p, const float* x, float* out,
              size_t n) {
  switch (op) {
    case ActivationOp::kCeil:
    case ActivationOp::kFloor:
    case ActivationOp::kRound:
      return Steps(op, x, out, n);
    case ActivationOp::kLeakyRelu:
      return MapOne(x, out, n, [&](D d, V v) HWY_ATTR {
        return hn::IfThenElse(hn::Lt(v, hn::Zero(d)), hn::Mul(hn::Set(d, p.a), v), v);
      });
    case ActivationOp::kHardSigmoid:
      return MapOne(x, out, n, [&](D d, V v) HWY_ATTR {
        return ToUnit(d, hn::MulAdd(hn::Set(d, p.a), v, hn::Set(d, p.b)));
      });
    case ActivationOp::kHardSwish:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR {
        return hn::Mul(v, ToUnit(d, hn::MulAdd(hn::Set(d, 1.0f / 6), v, hn::Set(d, 0.5f))));
      });
    case ActivationOp::kSoftsign:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR {
        return hn::Div(v, hn::Add(hn::Set(d, 1.0f), hn::Abs(v)));
      });
    case ActivationOp::kThresholdedRelu:
      return MapOne(x, out, n, [&](D d, V v) HWY_ATTR {
        return KeepNan(v, hn::IfThenElseZero(hn::Gt(v, hn::Set(d, p.a)), v));
      });
    default:
      return Smooth(op, p, x, out, n);
  }
}

void SwiGlu(float alpha, const float* a, const float* b, float* out, size_t n) {
  MapTwo(a, b, out, n, [=](D d, V gate, V value) HWY_ATTR {
    const V swish = hn::Mul(gate, Sigmoid(d, hn::Mul(hn::Set(d, alpha), gate)));
    return hn::Mul(swish, value);
  });
}

void Clip(float low, float high, const float* x, float* out, size_t n) {
  MapOne(x, out, n, [=](D d, V v) HWY_ATTR {
    return KeepNan(v, hn::Min(hn::Set(d, high), hn::Max(hn::Set(d, low), v)));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
namespace {

bool IsSmooth(ActivationOp op) {
  switch (op) {
    case ActivationOp::kElu:
    case ActivationOp::kSoftplus:
    case ActivationOp::kMish:
    case ActivationOp::kSwish:
    case ActivationOp::kGelu:
    case ActivationOp::kTanhGelu:
      return true;
    default:
      return false;
  }
}

}  // namespace

HWY_EXPORT(Activate);
HWY_EXPORT(Clip);
HWY_EXPORT(SwiGlu);

void ActivateFloat(ActivationOp op, const ActivationParameters& parameters, const float* x,
                   float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(Activate)(op, parameters, x, out, n);
}

void ClipFloat(float low, float high, const float* x, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(Clip)(low, high, x, out, n);
}

void SwiGluFloat(float alpha, const float* a, const float* b, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(SwiGlu)(alpha, a, b, out, n);
}

std::unique_ptr<Kernel> MakeFloatActivation(ActivationOp op, const ActivationParameters& parameters,
                                            int64_t elements, int threads) {
  const double nanoseconds = IsSmooth(op) ? kVectorFunctionNanoseconds : kArithmeticNanoseconds;
  return MakeKernel([=](const KernelContext& context) {
    const float* x = Input<float>(context, 0);
    float* out = Output<float>(context, 0);
    ParallelFor(threads, elements, nanoseconds, kElementGrain, [&](int64_t begin, int64_t end) {
      ActivateFloat(op, parameters, x + begin, out + begin, end - begin);
    });
    return absl::OkStatus();
  });
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
