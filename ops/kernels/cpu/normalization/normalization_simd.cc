// The float32 functions of normalization_math.h with Highway: whole vectors first, the rest one by
// one.
#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/normalization/normalization_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/normalization/normalization_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<float>;
using Single = HWY_CAPPED(float, 1);
template <class D>
using Vec = hn::Vec<D>;

// Calls body(d, i) for vectors from `begin` on that end before `count`; returns where it stopped.
template <class D, class Body>
HWY_INLINE int64_t ForVectors(D d, int64_t begin, int64_t count, Body body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= count; i += lanes) body(d, i);
  return i;
}

// xhat of the elements at x.
template <class D>
HWY_INLINE Vec<D> Normalized(D d, const float* x, Statistics<float> s) {
  return hn::Mul(hn::Sub(hn::LoadU(d, x), hn::Set(d, s.mean)), hn::Set(d, s.inverse));
}

// Sums term(d, i) over all i, in two chains.
template <class Term>
HWY_INLINE float SumTerms(int64_t count, Term term) {
  const Wide d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec<Wide> even = hn::Zero(d);
  Vec<Wide> odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    even = hn::Add(even, term(d, i));
    odd = hn::Add(odd, term(d, i + lanes));
  }
  for (; i + lanes <= count; i += lanes) even = hn::Add(even, term(d, i));
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  const Single one;
  for (; i < count; ++i) sum += hn::GetLane(term(one, i));
  return sum;
}

float SumOf(const float* x, int64_t count) {
  return SumTerms(count, [&](auto d, int64_t i) HWY_ATTR { return hn::LoadU(d, x + i); });
}

float SumOfSquaredDeviations(const float* x, int64_t count, float mean) {
  return SumTerms(count, [&](auto d, int64_t i) HWY_ATTR {
    const auto deviation = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    return hn::Mul(deviation, deviation);
  });
}

void ScaleAndShift(const float* x, int64_t count, float factor, float addend, float* y) {
  const auto body = [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), hn::Set(d, factor), hn::Set(d, addend)), d, y + i);
  };
  ForVectors(Single(), ForVectors(Wide(), 0, count, body), count, body);
}

void NormalizeRow(const float* x, int64_t count, Statistics<float> s, const float* scale,
                  const float* bias, float* y) {
  const auto body = [&](auto d, int64_t i) HWY_ATTR {
    const auto addend = bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + i);
    hn::StoreU(hn::MulAdd(Normalized(d, x + i, s), hn::LoadU(d, scale + i), addend), d, y + i);
  };
  ForVectors(Single(), ForVectors(Wide(), 0, count, body), count, body);
}

template <class D>
HWY_INLINE Vec<D> Scaled(D d, const float* dy, const float* scale, int64_t i) {
  const Vec<D> g = hn::LoadU(d, dy + i);
  return scale == nullptr ? g : hn::Mul(g, hn::LoadU(d, scale + i));
}

GradientSums<float> SumGradientRow(const float* dy, const float* x, int64_t count,
                                   Statistics<float> s, const float* scale) {
  const Wide wide;
  Vec<Wide> sum = hn::Zero(wide);
  Vec<Wide> sum_xhat = hn::Zero(wide);
  int64_t i = ForVectors(wide, 0, count, [&](auto d, int64_t k) HWY_ATTR {
    const auto g = Scaled(d, dy, scale, k);
    sum = hn::Add(sum, g);
    sum_xhat = hn::MulAdd(g, Normalized(d, x + k, s), sum_xhat);
  });
  GradientSums<float> sums{hn::GetLane(hn::SumOfLanes(wide, sum)),
                           hn::GetLane(hn::SumOfLanes(wide, sum_xhat))};
  for (; i < count; ++i) {
    const float g = scale == nullptr ? dy[i] : dy[i] * scale[i];
    sums.g += g;
    sums.g_xhat += g * ((x[i] - s.mean) * s.inverse);
  }
  return sums;
}

void NormalizeGradientRow(const float* dy, const float* x, int64_t count, Statistics<float> s,
                          const float* scale, GradientSums<float> means, float* dx) {
  const auto body = [&](auto d, int64_t i) HWY_ATTR {
    const auto centered = hn::Sub(Scaled(d, dy, scale, i), hn::Set(d, means.g));
    const auto inner = hn::NegMulAdd(Normalized(d, x + i, s), hn::Set(d, means.g_xhat), centered);
    hn::StoreU(hn::Mul(hn::Set(d, s.inverse), inner), d, dx + i);
  };
  ForVectors(Single(), ForVectors(Wide(), 0, count, body), count, body);
}

void AddParameterGradients(const float* dy, const float* x, int64_t count, Statistics<float> s,
                           float* dscale, float* dbias) {
  const auto body = [&](auto d, int64_t i) HWY_ATTR {
    const auto g = hn::LoadU(d, dy + i);
    if (dbias != nullptr) hn::StoreU(hn::Add(hn::LoadU(d, dbias + i), g), d, dbias + i);
    if (dscale != nullptr) {
      hn::StoreU(hn::MulAdd(g, Normalized(d, x + i, s), hn::LoadU(d, dscale + i)), d, dscale + i);
    }
  };
  ForVectors(Single(), ForVectors(Wide(), 0, count, body), count, body);
}

void CombineLinear(const float* dy, const float* x, int64_t count, float a, float b, float c,
                   float* dx) {
  const auto body = [&](auto d, int64_t i) HWY_ATTR {
    const auto rest = hn::MulAdd(hn::LoadU(d, x + i), hn::Set(d, b), hn::Set(d, c));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, dy + i), hn::Set(d, a), rest), d, dx + i);
  };
  ForVectors(Single(), ForVectors(Wide(), 0, count, body), count, body);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
namespace {

HWY_EXPORT(SumOf);
HWY_EXPORT(SumOfSquaredDeviations);
HWY_EXPORT(ScaleAndShift);
HWY_EXPORT(NormalizeRow);
HWY_EXPORT(SumGradientRow);
HWY_EXPORT(NormalizeGradientRow);
HWY_EXPORT(AddParameterGradients);
HWY_EXPORT(CombineLinear);

}  // namespace

float SumOf(const float* x, int64_t count) { return HWY_DYNAMIC_DISPATCH(SumOf)(x, count); }

float SumOfSquaredDeviations(const float* x, int64_t count, float mean) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquaredDeviations)(x, count, mean);
}

void ScaleAndShift(const float* x, int64_t count, float factor, float addend, float* y) {
  HWY_DYNAMIC_DISPATCH(ScaleAndShift)(x, count, factor, addend, y);
}

void NormalizeRow(const float* x, int64_t count, Statistics<float> statistics, const float* scale,
                  const float* bias, float* y) {
  HWY_DYNAMIC_DISPATCH(NormalizeRow)(x, count, statistics, scale, bias, y);
}

GradientSums<float> SumGradientRow(const float* dy, const float* x, int64_t count,
                                   Statistics<float> statistics, const float* scale) {
  return HWY_DYNAMIC_DISPATCH(SumGradientRow)(dy, x, count, statistics, scale);
}

void NormalizeGradientRow(const float* dy, const float* x, int64_t count,
                          Statistics<float> statistics, const float* scale,
                          GradientSums<float> means, float* dx) {
  HWY_DYNAMIC_DISPATCH(NormalizeGradientRow)(dy, x, count, statistics, scale, means, dx);
}

void AddParameterGradients(const float* dy, const float* x, int64_t count,
                           Statistics<float> statistics, float* dscale, float* dbias) {
  HWY_DYNAMIC_DISPATCH(AddParameterGradients)(dy, x, count, statistics, dscale, dbias);
}

void CombineLinear(const float* dy, const float* x, int64_t count, float a, float b, float c,
                   float* dx) {
  HWY_DYNAMIC_DISPATCH(CombineLinear)(dy, x, count, a, b, c, dx);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
