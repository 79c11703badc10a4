#include "ops/kernels/cpu/quantized/quantize_simd.h"

#include <limits>

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/quantized/quantize_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// The last, partial vector is handled in a buffer of whole ones.
template <typename T>
HWY_INLINE void Quantize(const float* x, float scale, float zero, T* out, size_t n) {
  const FloatTag d;
  const hn::Rebind<int32_t, FloatTag> di;
  const hn::Rebind<T, FloatTag> dt;
  const size_t lanes = hn::Lanes(d);
  const FloatVector divisor = hn::Set(d, scale);
  const FloatVector offset = hn::Set(d, zero);
  const FloatVector low = hn::Set(d, static_cast<float>(std::numeric_limits<T>::lowest()));
  const FloatVector high = hn::Set(d, static_cast<float>(std::numeric_limits<T>::max()));
  const auto code = [&](FloatVector v) HWY_ATTR {
    const FloatVector whole = hn::Add(hn::Round(hn::Div(v, divisor)), offset);
    const FloatVector number = hn::IfThenElse(hn::IsNaN(whole), low, whole);
    return hn::DemoteTo(dt, hn::ConvertTo(di, hn::Min(hn::Max(number, low), high)));
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(code(hn::LoadU(d, x + i)), dt, out + i);
  if (i < n) {
    HWY_ALIGN T last[hn::MaxLanes(d)];
    hn::StoreU(code(LoadPart(d, x + i, n - i)), dt, last);
    std::memcpy(out + i, last, (n - i) * sizeof(T));
  }
}

template <typename T>
HWY_INLINE void Dequantize(const T* x, float scale, float zero, float* out, size_t n) {
  const FloatTag d;
  const hn::Rebind<int32_t, FloatTag> di;
  const hn::Rebind<T, FloatTag> dt;
  const size_t lanes = hn::Lanes(d);
  const FloatVector factor = hn::Set(d, scale);
  const FloatVector offset = hn::Set(d, zero);
  const auto number = [&](const T* from) HWY_ATTR {
    const FloatVector v = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(dt, from)));
    return hn::Mul(hn::Sub(v, offset), factor);
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(number(x + i), d, out + i);
  if (i < n) {
    HWY_ALIGN T last[hn::MaxLanes(d)] = {};
    std::memcpy(last, x + i, (n - i) * sizeof(T));
    StorePart(d, number(last), out + i, n - i);
  }
}

void QuantizeUnsigned(const float* x, float scale, float zero, uint8_t* out, size_t n) {
  Quantize(x, scale, zero, out, n);
}
void QuantizeSigned(const float* x, float scale, float zero, int8_t* out, size_t n) {
  Quantize(x, scale, zero, out, n);
}
void DequantizeUnsigned(const uint8_t* x, float scale, float zero, float* out, size_t n) {
  Dequantize(x, scale, zero, out, n);
}
void DequantizeSigned(const int8_t* x, float scale, float zero, float* out, size_t n) {
  Dequantize(x, scale, zero, out, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(QuantizeUnsigned);
HWY_EXPORT(QuantizeSigned);
HWY_EXPORT(DequantizeUnsigned);
HWY_EXPORT(DequantizeSigned);

void QuantizeFloat(const float* x, float scale, float zero, uint8_t* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(QuantizeUnsigned)(x, scale, zero, out, n);
}
void QuantizeFloat(const float* x, float scale, float zero, int8_t* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(QuantizeSigned)(x, scale, zero, out, n);
}
void DequantizeToFloat(const uint8_t* x, float scale, float zero, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(DequantizeUnsigned)(x, scale, zero, out, n);
}
void DequantizeToFloat(const int8_t* x, float scale, float zero, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(DequantizeSigned)(x, scale, zero, out, n);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
