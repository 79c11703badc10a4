// Vector functions on float32 and loops over arrays, for files that Highway compiles once per
// instruction set. NaN passes through every function.

// Included once per target: see foreach_target.h.
#if defined(WEFT_OPS_KERNELS_CPU_BLOCKS_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_KERNELS_CPU_BLOCKS_SIMD_MATH_INL_H_
#undef WEFT_OPS_KERNELS_CPU_BLOCKS_SIMD_MATH_INL_H_
#else
#define WEFT_OPS_KERNELS_CPU_BLOCKS_SIMD_MATH_INL_H_
#endif

#include <cstddef>
#include <cstring>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

// The first `count` (less than the lanes) floats; the other lanes are zero.
HWY_INLINE FloatVector LoadPart(FloatTag d, const float* from, size_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float lanes[hn::MaxLanes(d)] = {};
  std::memcpy(lanes, from, count * sizeof(float));
  return hn::Load(d, lanes);
#else
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#endif
}

HWY_INLINE void StorePart(FloatTag d, FloatVector value, float* to, size_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(value, d, lanes);
  std::memcpy(to, lanes, count * sizeof(float));
#else
  hn::BlendedStore(value, hn::FirstN(d, count), d, to);
#endif
}

// out[i] = fn(d, x[i]). The last, partial vector goes through the same instructions, so that an
// element's bits do not depend on where it lies. `out` may be `x`.
template <class Fn>
HWY_INLINE void MapOne(const float* x, float* out, size_t n, Fn fn) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(fn(d, hn::LoadU(d, x + i)), d, out + i);
  if (i < n) StorePart(d, fn(d, LoadPart(d, x + i, n - i)), out + i, n - i);
}

// out[i] = fn(d, a[i], b[i]); `out` may be `a` or `b`.
template <class Fn>
HWY_INLINE void MapTwo(const float* a, const float* b, float* out, size_t n, Fn fn) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(fn(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  }
  if (i < n) {
    const FloatVector value = fn(d, LoadPart(d, a + i, n - i), LoadPart(d, b + i, n - i));
    StorePart(d, value, out + i, n - i);
  }
}

HWY_INLINE FloatVector KeepNan(FloatVector x, FloatVector value) {
  return hn::IfThenElse(hn::IsNaN(x), x, value);
}

// e^x to 1 ulp; infinity above 88.73.
HWY_INLINE FloatVector Exp(FloatTag d, FloatVector x) {
  return KeepNan(x, hn::Exp(d, hn::Min(x, hn::Set(d, 89.0f))));
}

// e^x to 1 ulp for x <= 0; zero where that is no normal number. Half the instructions of Exp. The
// polynomial is our own, fitted to the relative error on [-ln 2 / 2, ln 2 / 2].
HWY_INLINE FloatVector ExpOfNegative(FloatTag d, FloatVector x) {
  // Added to a small number, leaves it rounded to an integer in the low bits.
  const FloatVector magic = hn::Set(d, 12582912.0f);
  const FloatVector shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const FloatVector n = hn::Sub(shifted, magic);
  // ln 2 in two parts, of which the first has so few bits that its product with n is exact.
  FloatVector r = hn::NegMulAdd(n, hn::Set(d, 0.693145752f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-06f), r);
  FloatVector y = hn::Set(d, 0.001381454f);
  y = hn::MulAdd(y, r, hn::Set(d, 0.008368745f));
  y = hn::MulAdd(y, r, hn::Set(d, 0.04166839f));
  y = hn::MulAdd(y, r, hn::Set(d, 0.16666521f));
  y = hn::MulAdd(y, r, hn::Set(d, 0.49999994f));
  y = hn::MulAdd(hn::Mul(y, r), r, r);
  const FloatVector one = hn::Set(d, 1.0f);
  const hn::RebindToSigned<FloatTag> integers;
  const FloatVector power = hn::BitCast(
      d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(integers, shifted)), hn::BitCast(integers, one)));
  // NaN is not less, and stays.
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3365402f)), hn::Mul(hn::Add(y, one), power));
}

// ln x to 2 ulp; -infinity at 0, NaN below.
HWY_INLINE FloatVector Log(FloatTag d, FloatVector x) {
  const FloatVector zero = hn::Zero(d);
  const FloatVector infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  FloatVector y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
  y = hn::IfThenElse(hn::Lt(x, zero), hn::NaN(d), y);
  return KeepNan(x, y);
}

// 1 / (1 + e^-x), without overflow and with the relative accuracy of Exp on both sides.
HWY_INLINE FloatVector Sigmoid(FloatTag d, FloatVector x) {
  const FloatVector one = hn::Set(d, 1.0f);
  const FloatVector e = ExpOfNegative(d, hn::Neg(hn::Abs(x)));
  const FloatVector numerator = hn::IfThenElse(hn::Ge(x, hn::Zero(d)), one, e);
  return hn::Div(numerator, hn::Add(one, e));
}

HWY_INLINE FloatVector Tanh(FloatTag d, FloatVector x) { return KeepNan(x, hn::Tanh(d, x)); }

// erf to 1 ulp where multiplication and addition fuse, 2 elsewhere. Polynomials of our own, fitted
// by weighted least squares to the relative error: erf(x)/x - 1 in x^2 below 0.9277, ln(erfc(x))
// above.
HWY_INLINE FloatVector Erf(FloatTag d, FloatVector x) {
  const FloatVector t = hn::Min(hn::Abs(x), hn::Set(d, 4.0f));  // erf(4) is 1 in float32
  const FloatVector s = hn::Mul(t, t);
  FloatVector small = hn::Set(d, -0.000596425438f);
  small = hn::MulAdd(small, s, hn::Set(d, 0.00498800445f));
  small = hn::MulAdd(small, s, hn::Set(d, -0.0267631244f));
  small = hn::MulAdd(small, s, hn::Set(d, 0.112817213f));
  small = hn::MulAdd(small, s, hn::Set(d, -0.376124859f));
  small = hn::MulAdd(small, s, hn::Set(d, 0.128379151f));
  small = hn::MulAdd(small, t, t);
  FloatVector large = hn::Set(d, -2.11787246e-05f);
  large = hn::MulAdd(large, t, hn::Set(d, 0.000435430644f));
  large = hn::MulAdd(large, t, hn::Set(d, -0.00417575706f));
  large = hn::MulAdd(large, t, hn::Set(d, 0.0251317993f));
  large = hn::MulAdd(large, t, hn::Set(d, -0.10829924f));
  large = hn::MulAdd(large, t, hn::Set(d, -0.633329511f));
  large = hn::MulAdd(large, t, hn::Set(d, -1.12952352f));
  large = hn::MulAdd(large, t, hn::Set(d, 0.000176480971f));
  large = hn::Sub(hn::Set(d, 1.0f), ExpOfNegative(d, large));
  const FloatVector value = hn::IfThenElse(hn::Lt(t, hn::Set(d, 0.9277f)), small, large);
  return KeepNan(x, hn::CopySign(value, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
