#include "ops/kernels/cpu/pool_simd.h"

#include "ops/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/pool_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Rows of images are short: eight lanes at most, then four, then one.
using WideTag = HWY_CAPPED(float, 8);
using NarrowTag = HWY_CAPPED(float, 4);
using ScalarTag = HWY_CAPPED(float, 1);

// The larger one; NaN wins and stays.
template <class V>
HWY_INLINE V Larger(V candidate, V best) {
  const auto replaces = hn::Or(hn::Gt(candidate, best), hn::IsNaN(candidate));
  return hn::IfThenElse(replaces, candidate, best);
}

template <class D>
HWY_INLINE int64_t MaxBlocks(D d, const float* x, int64_t begin, int64_t count, float* y) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= count; i += lanes) {
    hn::Vec<D> even, odd;
    hn::LoadInterleaved2(d, x + 2 * i, even, odd);
    hn::StoreU(Larger(odd, Larger(even, hn::LoadU(d, y + i))), d, y + i);
  }
  return i;
}

void MaxOfPairs(const float* x, int64_t count, float* y) {
  int64_t i = MaxBlocks(WideTag(), x, 0, count, y);
  i = MaxBlocks(NarrowTag(), x, i, count, y);
  MaxBlocks(ScalarTag(), x, i, count, y);
}

struct WindowRows {
  const float* top;
  const float* bottom;
  const float* y;
  const float* dy;
  float* dtop;
  float* dbottom;
};

template <class D>
HWY_INLINE int64_t GradientBlocks(D d, const WindowRows& rows, int64_t begin, int64_t count) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= count; i += lanes) {
    hn::Vec<D> top_even, top_odd, bottom_even, bottom_odd;
    hn::LoadInterleaved2(d, rows.top + 2 * i, top_even, top_odd);
    hn::LoadInterleaved2(d, rows.bottom + 2 * i, bottom_even, bottom_odd);
    const hn::Vec<D> y = hn::LoadU(d, rows.y + i);
    hn::Vec<D> rest = hn::LoadU(d, rows.dy + i);
    const auto take = [&](hn::Vec<D> x) HWY_ATTR {
      const auto equal = hn::Eq(x, y);
      const hn::Vec<D> taken = hn::IfThenElseZero(equal, rest);
      rest = hn::IfThenZeroElse(equal, rest);
      return taken;
    };
    const hn::Vec<D> to_top_even = take(top_even);
    const hn::Vec<D> to_top_odd = take(top_odd);
    const hn::Vec<D> to_bottom_even = take(bottom_even);
    hn::StoreInterleaved2(to_top_even, to_top_odd, d, rows.dtop + 2 * i);
    hn::StoreInterleaved2(to_bottom_even, rest, d, rows.dbottom + 2 * i);
  }
  return i;
}

void MaxOfPairsGradient(const float* top, const float* bottom, const float* y, const float* dy,
                        int64_t count, float* dtop, float* dbottom) {
  const WindowRows rows{top, bottom, y, dy, dtop, dbottom};
  int64_t i = GradientBlocks(WideTag(), rows, 0, count);
  i = GradientBlocks(NarrowTag(), rows, i, count);
  GradientBlocks(ScalarTag(), rows, i, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MaxOfPairs);
HWY_EXPORT(MaxOfPairsGradient);

void MaxOfPairs(const float* x, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(MaxOfPairs)(x, count, y);
}

void MaxOfPairsGradient(const float* top, const float* bottom, const float* y, const float* dy,
                        int64_t count, float* dtop, float* dbottom) {
  HWY_DYNAMIC_DISPATCH(MaxOfPairsGradient)(top, bottom, y, dy, count, dtop, dbottom);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
