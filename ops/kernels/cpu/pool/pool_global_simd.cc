#include "ops/kernels/cpu/pool/pool_global_simd.h"

#include <algorithm>
#include <limits>

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/pool/pool_global_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"
#include "ops/kernels/cpu/pool/pool_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// Element i is added to chain i % 16, so that all instruction sets give the same bits.
HWY_INLINE float SumOfPlane(const float* x, int64_t size) {
  constexpr int kChains = 16;
  const FloatTag d;
  constexpr int kVectors = kChains / hn::MaxLanes(FloatTag());
  const int64_t lanes = LanesOf(d);
  FloatVector sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  int64_t i = 0;
  for (; i + kChains <= size; i += kChains) {
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::Add(sums[v], hn::LoadU(d, x + i + v * lanes));
    }
  }
  for (int v = 0; v < kVectors && i < size; ++v, i += lanes) {
    sums[v] = hn::Add(sums[v], LoadUpTo(x + i, size - i));
  }
  HWY_ALIGN float chains[kChains];
  for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], d, chains + v * lanes);
  const HWY_CAPPED(float, 4) narrow;
  const int step = static_cast<int>(hn::Lanes(narrow));
  for (const int width : {8, 4}) {
    for (int k = 0; k < width; k += step) {
      const auto sum = hn::Add(hn::Load(narrow, chains + k), hn::Load(narrow, chains + k + width));
      hn::Store(sum, narrow, chains + k);
    }
  }
  return (chains[0] + chains[2]) + (chains[1] + chains[3]);
}

void AverageOfPlanes(const float* x, int64_t planes, int64_t size, float* y) {
  for (int64_t p = 0; p < planes; ++p) {
    y[p] = SumOfPlane(x + p * size, size) / static_cast<float>(size);
  }
}

// The largest element in some order of comparing.
HWY_INLINE float LargestOf(const float* x, int64_t size) {
  const FloatTag d;
  const int64_t lanes = LanesOf(d);
  const FloatVector lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  FloatVector a = lowest;
  FloatVector b = lowest;
  const auto larger = [](FloatVector best, FloatVector next)
                          HWY_ATTR { return hn::IfThenElse(hn::Gt(next, best), next, best); };
  int64_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    a = larger(a, hn::LoadU(d, x + i));
    b = larger(b, hn::LoadU(d, x + i + lanes));
  }
  HWY_ALIGN float found[hn::MaxLanes(FloatTag())];
  hn::Store(larger(a, b), d, found);
  float best = found[0];
  for (int64_t k = 1; k < lanes; ++k) best = std::max(best, found[k]);
  for (; i < size; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

void MaxOfPlanes(const float* x, int64_t planes, int64_t size, float* y) {
  for (int64_t p = 0; p < planes; ++p, x += size) {
    NanSearch nan;
    nan.Look(x, size);
    if (nan.found()) {
      int64_t i = size - 1;
      while (x[i] == x[i]) --i;
      y[p] = x[i];
      continue;
    }
    const float best = LargestOf(x, size);
    // 0 and -0 are equal: the first of them is taken.
    y[p] = best == 0 ? *std::find(x, x + size, best) : best;
  }
}

void SpreadOverPlanes(const float* dy, int64_t planes, int64_t size, float* dx) {
  for (int64_t p = 0; p < planes; ++p) {
    FillRow(dy[p] / static_cast<float>(size), size, dx + p * size);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(AverageOfPlanes);
HWY_EXPORT(MaxOfPlanes);
HWY_EXPORT(SpreadOverPlanes);

void AverageOfPlanes(const float* x, int64_t planes, int64_t size, float* y) {
  HWY_DYNAMIC_DISPATCH(AverageOfPlanes)(x, planes, size, y);
}

void MaxOfPlanes(const float* x, int64_t planes, int64_t size, float* y) {
  HWY_DYNAMIC_DISPATCH(MaxOfPlanes)(x, planes, size, y);
}

void SpreadOverPlanes(const float* dy, int64_t planes, int64_t size, float* dx) {
  HWY_DYNAMIC_DISPATCH(SpreadOverPlanes)(dy, planes, size, dx);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
