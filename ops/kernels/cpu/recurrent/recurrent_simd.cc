#include "ops/kernels/cpu/recurrent/recurrent_simd.h"

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/recurrent/recurrent_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

template <class Fn>
HWY_INLINE void ForEachVector(float* values, int64_t count, Fn fn) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(fn(hn::LoadU(d, values + i)), d, values + i);
  const size_t rest = static_cast<size_t>(count - i);
  if (rest > 0) StorePart(d, fn(LoadPart(d, values + i, rest)), values + i, rest);
}

void SigmoidVectors(float* values, int64_t count) {
  const FloatTag d;
  ForEachVector(values, count, [&](FloatVector x) HWY_ATTR { return Sigmoid(d, x); });
}

void TanhVectors(float* values, int64_t count) {
  const FloatTag d;
  ForEachVector(values, count, [&](FloatVector x) HWY_ATTR { return Tanh(d, x); });
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(SigmoidVectors);
HWY_EXPORT(TanhVectors);

void SigmoidInPlace(float* values, int64_t count) {
  HWY_DYNAMIC_DISPATCH(SigmoidVectors)(values, count);
}

void TanhInPlace(float* values, int64_t count) { HWY_DYNAMIC_DISPATCH(TanhVectors)(values, count); }

}  // namespace weft::cpu
#endif  // HWY_ONCE
