#include "ops/kernels/cpu/elementwise/elementwise_simd.h"

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/elementwise/elementwise_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

using D = FloatTag;
using V = FloatVector;

void Unary(UnaryOp op, const float* x, float* out, size_t n) {
  switch (op) {
    case UnaryOp::kNeg:
      return MapOne(x, out, n, [](D, V v) HWY_ATTR { return hn::Neg(v); });
    case UnaryOp::kExp:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR { return Exp(d, v); });
    case UnaryOp::kLog:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR { return Log(d, v); });
    case UnaryOp::kSqrt:
      return MapOne(x, out, n, [](D, V v) HWY_ATTR { return hn::Sqrt(v); });
    case UnaryOp::kReciprocal:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR { return hn::Div(hn::Set(d, 1.0f), v); });
    case UnaryOp::kAbs:
      return MapOne(x, out, n, [](D, V v) HWY_ATTR { return hn::Abs(v); });
    case UnaryOp::kSign:  // 0, -0 and NaN stay
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR {
        const auto nonzero = hn::Gt(hn::Abs(v), hn::Zero(d));
        return hn::IfThenElse(nonzero, hn::CopySign(hn::Set(d, 1.0f), v), v);
      });
    case UnaryOp::kErf:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR { return Erf(d, v); });
    case UnaryOp::kRelu:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR {
        return hn::IfThenElse(hn::Lt(v, hn::Zero(d)), hn::Zero(d), v);
      });
    case UnaryOp::kSigmoid:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR { return Sigmoid(d, v); });
    case UnaryOp::kTanh:
      return MapOne(x, out, n, [](D d, V v) HWY_ATTR { return Tanh(d, v); });
  }
}

template <class Fn>
HWY_INLINE void MapOperands(BinaryOperands operands, const float* a, const float* b, float* out,
                            size_t n, Fn fn) {
  const D d;
  switch (operands) {
    case BinaryOperands::kArrays:
      return MapTwo(a, b, out, n, fn);
    case BinaryOperands::kScalarA: {
      const V scalar = hn::Set(d, *a);
      return MapOne(b, out, n, [&](D d1, V v) HWY_ATTR { return fn(d1, scalar, v); });
    }
    case BinaryOperands::kScalarB: {
      const V scalar = hn::Set(d, *b);
      return MapOne(a, out, n, [&](D d1, V v) HWY_ATTR { return fn(d1, v, scalar); });
    }
  }
}

// x s (1 - s) factor + s
HWY_INLINE V GatedSlope(D d, V x, V s, V factor) {
  const V rest = hn::Mul(hn::Mul(x, hn::Mul(s, hn::Sub(hn::Set(d, 1.0f), s))), factor);
  return hn::Add(s, rest);
}

// Slopes of activations at x.
HWY_INLINE V GeluSlope(D d, V x) {
  const V exponent = hn::Mul(hn::Set(d, -0.5f), hn::Mul(x, x));
  const V density = hn::Mul(hn::Set(d, 0.398942280f), Exp(d, exponent));  // 1 / sqrt(2 pi)
  const V erf = Erf(d, hn::Mul(x, hn::Set(d, 0.70710678f)));
  const V distribution = hn::MulAdd(hn::Set(d, 0.5f), erf, hn::Set(d, 0.5f));
  return hn::MulAdd(x, density, distribution);
}

HWY_INLINE V TanhGeluSlope(D d, V x) {
  const V twice = hn::Set(d, 1.595769122f);  // 2 sqrt(2 / pi)
  const V square = hn::Mul(x, x);
  const V one = hn::Set(d, 1.0f);
  const V inner = hn::Mul(twice, hn::Mul(x, hn::MulAdd(hn::Set(d, 0.044715f), square, one)));
  const V slope = hn::Mul(twice, hn::MulAdd(hn::Set(d, 0.134145f), square, one));
  return GatedSlope(d, x, Sigmoid(d, inner), slope);
}

HWY_INLINE V ActivationSlope(BinaryOp op, D d, V x) {
  switch (op) {
    case BinaryOp::kGeluGrad:
      return GeluSlope(d, x);
    case BinaryOp::kTanhGeluGrad:
      return TanhGeluSlope(d, x);
    default:
      return GatedSlope(d, x, Sigmoid(d, x), hn::Set(d, 1.0f));
  }
}

void Binary(BinaryOp op, BinaryOperands operands, const float* a, const float* b, float* out,
            size_t n) {
  switch (op) {
    case BinaryOp::kAdd:
      return MapOperands(operands, a, b, out, n,
                         [](D, V x, V y) HWY_ATTR { return hn::Add(x, y); });
    case BinaryOp::kSub:
      return MapOperands(operands, a, b, out, n,
                         [](D, V x, V y) HWY_ATTR { return hn::Sub(x, y); });
    case BinaryOp::kMul:
      return MapOperands(operands, a, b, out, n,
                         [](D, V x, V y) HWY_ATTR { return hn::Mul(x, y); });
    case BinaryOp::kDiv:
      return MapOperands(operands, a, b, out, n,
                         [](D, V x, V y) HWY_ATTR { return hn::Div(x, y); });
    case BinaryOp::kReluGrad:
      return MapOperands(operands, a, b, out, n, [](D d, V dy, V y) HWY_ATTR {
        return hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), dy);
      });
    case BinaryOp::kSigmoidGrad:
      return MapOperands(operands, a, b, out, n, [](D d, V dy, V y) HWY_ATTR {
        return hn::Mul(dy, hn::Mul(y, hn::Sub(hn::Set(d, 1.0f), y)));
      });
    case BinaryOp::kTanhGrad:
      return MapOperands(operands, a, b, out, n, [](D d, V dy, V y) HWY_ATTR {
        const V one = hn::Set(d, 1.0f);
        return hn::Mul(dy, hn::Mul(hn::Sub(one, y), hn::Add(one, y)));
      });
    case BinaryOp::kErfGrad:
      return MapOperands(operands, a, b, out, n, [](D d, V dy, V x) HWY_ATTR {
        const V slope = Exp(d, hn::Neg(hn::Mul(x, x)));
        return hn::Mul(dy, hn::Mul(hn::Set(d, 1.12837917f), slope));  // 2 / sqrt(pi)
      });
    case BinaryOp::kGeluGrad:
    case BinaryOp::kTanhGeluGrad:
    case BinaryOp::kSwishGrad:
      return MapOperands(operands, a, b, out, n, [op](D d, V dy, V x) HWY_ATTR {
        return hn::Mul(dy, ActivationSlope(op, d, x));
      });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(Unary);
HWY_EXPORT(Binary);

void UnaryFloat(UnaryOp op, const float* x, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(Unary)(op, x, out, n);
}

void BinaryFloat(BinaryOp op, BinaryOperands operands, const float* a, const float* b, float* out,
                 size_t n) {
  HWY_DYNAMIC_DISPATCH(Binary)(op, operands, a, b, out, n);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
