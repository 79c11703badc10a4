#include "ops/kernels/cpu/blocks/half_simd.h"

#include <cstdint>
#include <cstring>

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/blocks/half_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// Bits of float32 as signed numbers: compares of magnitudes, which have no sign bit.
using Bits = hn::RebindToSigned<FloatTag>;
using BitsVector = hn::Vec<Bits>;
using Codes = hn::Rebind<uint16_t, FloatTag>;

HWY_INLINE BitsVector Number(uint32_t bits) { return hn::Set(Bits(), static_cast<int32_t>(bits)); }

struct FromBfloat16 {
  HWY_INLINE BitsVector operator()(BitsVector code) const { return hn::ShiftLeft<16>(code); }
};

// After F. Giesen, "Half to float done quick": exponents are rebiased by an addition, and those of
// subnormals by a subtraction in float32, which is exact.
struct FromFloat16 {
  HWY_INLINE BitsVector operator()(BitsVector code) const {
    const FloatTag d;
    const BitsVector exponent = Number(0x0F800000u);
    const BitsVector shifted = hn::ShiftLeft<13>(hn::And(code, Number(0x7FFFu)));
    const BitsVector own = hn::And(shifted, exponent);
    const BitsVector rebiased = hn::Add(shifted, Number((127 - 15) << 23));
    const BitsVector special = hn::Add(rebiased, Number((128 - 16) << 23));
    const auto magic = hn::BitCast(d, Number(113u << 23));
    const BitsVector small =
        hn::BitCast(Bits(), hn::Sub(hn::BitCast(d, hn::Add(rebiased, Number(1u << 23))), magic));
    const BitsVector number = hn::IfThenElse(hn::Eq(own, Number(0)), small, rebiased);
    const BitsVector magnitude = hn::IfThenElse(hn::Eq(own, exponent), special, number);
    return hn::Or(magnitude, hn::ShiftLeft<16>(hn::And(code, Number(0x8000u))));
  }
};

// The upper half of `bits`, rounded by the lower one, halves to even.
HWY_INLINE BitsVector RoundedUpperHalf(BitsVector bits) {
  const hn::RebindToUnsigned<Bits> du;
  const auto u = hn::BitCast(du, bits);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(u, hn::Set(du, 0x7FFF)), odd);
  return hn::BitCast(Bits(), hn::ShiftRight<16>(rounded));
}

struct ToBfloat16Code {
  HWY_INLINE BitsVector operator()(BitsVector bits) const {
    const hn::RebindToUnsigned<Bits> du;
    const BitsVector magnitude = hn::And(bits, Number(0x7FFFFFFFu));
    const BitsVector upper = hn::BitCast(Bits(), hn::ShiftRight<16>(hn::BitCast(du, bits)));
    const BitsVector nan = hn::Or(upper, Number(0x0040u));
    return hn::IfThenElse(hn::Gt(magnitude, Number(0x7F800000u)), nan, RoundedUpperHalf(bits));
  }
};

// After F. Giesen, "Float to half done quick": a sum with a large number rounds subnormals.
struct ToFloat16Code {
  HWY_INLINE BitsVector operator()(BitsVector bits) const {
    const FloatTag d;
    const BitsVector magnitude = hn::And(bits, Number(0x7FFFFFFFu));
    const hn::RebindToUnsigned<Bits> du;
    const BitsVector sign = hn::BitCast(
        Bits(), hn::ShiftRight<16>(hn::BitCast(du, hn::And(bits, Number(0x80000000u)))));
    const BitsVector nan =
        hn::Or(hn::And(hn::ShiftRight<13>(magnitude), Number(0x3FFu)), Number(0x7E00u));
    const BitsVector magic = Number(((127 - 15) + (23 - 10) + 1) << 23);
    const BitsVector small = hn::Sub(
        hn::BitCast(Bits(), hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, magic))), magic);
    const BitsVector odd = hn::And(hn::ShiftRight<13>(magnitude), Number(1));
    const BitsVector rebiased = hn::Add(magnitude, Number(0xC8000FFFu));  // (15 - 127) << 23, half
    const BitsVector normal = hn::ShiftRight<13>(hn::Add(rebiased, odd));
    BitsVector code = hn::IfThenElse(hn::Lt(magnitude, Number(113u << 23)), small, normal);
    code = hn::IfThenElse(hn::Gt(magnitude, Number(0x477FEFFFu)), Number(0x7C00u), code);
    code = hn::IfThenElse(hn::Gt(magnitude, Number(0x7F800000u)), nan, code);
    return hn::Or(code, sign);
  }
};

// The last, partial vector is handled in a buffer of whole ones.
template <typename Convert>
HWY_INLINE void Widen(const uint16_t* x, float* out, size_t n) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto widened = [&](const uint16_t* from) HWY_ATTR {
    const BitsVector code = hn::PromoteTo(Bits(), hn::LoadU(Codes(), from));
    return hn::BitCast(d, Convert()(code));
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(widened(x + i), d, out + i);
  if (i < n) {
    HWY_ALIGN uint16_t last[hn::MaxLanes(d)] = {};
    std::memcpy(last, x + i, (n - i) * sizeof(uint16_t));
    StorePart(d, widened(last), out + i, n - i);
  }
}

template <typename Convert>
HWY_INLINE void Narrow(const float* x, uint16_t* out, size_t n) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto narrowed = [&](FloatVector v) HWY_ATTR {
    return hn::DemoteTo(Codes(), Convert()(hn::BitCast(Bits(), v)));
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(narrowed(hn::LoadU(d, x + i)), Codes(), out + i);
  if (i < n) {
    HWY_ALIGN uint16_t last[hn::MaxLanes(d)];
    hn::StoreU(narrowed(LoadPart(d, x + i, n - i)), Codes(), last);
    std::memcpy(out + i, last, (n - i) * sizeof(uint16_t));
  }
}

void WidenFloat16(const uint16_t* x, float* out, size_t n) { Widen<FromFloat16>(x, out, n); }
void WidenBfloat16(const uint16_t* x, float* out, size_t n) { Widen<FromBfloat16>(x, out, n); }
void NarrowToFloat16(const float* x, uint16_t* out, size_t n) { Narrow<ToFloat16Code>(x, out, n); }
void NarrowToBfloat16(const float* x, uint16_t* out, size_t n) {
  Narrow<ToBfloat16Code>(x, out, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(WidenFloat16);
HWY_EXPORT(WidenBfloat16);
HWY_EXPORT(NarrowToFloat16);
HWY_EXPORT(NarrowToBfloat16);

static_assert(sizeof(Float16) == sizeof(uint16_t) && sizeof(Bfloat16) == sizeof(uint16_t));

void WidenHalf(const Float16* x, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(WidenFloat16)(reinterpret_cast<const uint16_t*>(x), out, n);
}
void WidenHalf(const Bfloat16* x, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(WidenBfloat16)(reinterpret_cast<const uint16_t*>(x), out, n);
}
void NarrowToHalf(const float* x, Float16* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(NarrowToFloat16)(x, reinterpret_cast<uint16_t*>(out), n);
}
void NarrowToHalf(const float* x, Bfloat16* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(NarrowToBfloat16)(x, reinterpret_cast<uint16_t*>(out), n);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
