#include "ops/kernels/cpu/pool/pool_simd.h"

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/pool/pool_simd.cc"
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
HWY_INLINE int64_t MaxBlocks(D d, const float* top, const float* bottom, int64_t begin,
                             int64_t count, float* y) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= count; i += lanes) {
    hn::Vec<D> top_even, top_odd, bottom_even, bottom_odd;
    hn::LoadInterleaved2(d, top + 2 * i, top_even, top_odd);
    hn::LoadInterleaved2(d, bottom + 2 * i, bottom_even, bottom_odd);
    const hn::Vec<D> best = Larger(top_odd, top_even);
    hn::StoreU(Larger(bottom_odd, Larger(bottom_even, best)), d, y + i);
  }
  return i;
}

void MaxOfTwoByTwo(const TwoByTwoPlane& plane, const float* x, float* y) {
  for (int64_t h = 0; h < plane.output_rows; ++h, y += plane.output_columns) {
    const float* top = x + 2 * h * plane.input_columns;
    const float* bottom = top + plane.input_columns;
    int64_t i = MaxBlocks(WideTag(), top, bottom, 0, plane.output_columns, y);
    i = MaxBlocks(NarrowTag(), top, bottom, i, plane.output_columns, y);
    MaxBlocks(ScalarTag(), top, bottom, i, plane.output_columns, y);
  }
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

void MaxOfTwoByTwoGradient(const TwoByTwoPlane& plane, const float* x, const float* y,
                           const float* dy, float* dx) {
  for (int64_t h = 0; h < plane.output_rows; ++h) {
    const int64_t top = 2 * h * plane.input_columns;
    const int64_t bottom = top + plane.input_columns;
    const int64_t out = h * plane.output_columns;
    const WindowRows rows{x + top, x + bottom, y + out, dy + out, dx + top, dx + bottom};
    int64_t i = GradientBlocks(WideTag(), rows, 0, plane.output_columns);
    i = GradientBlocks(NarrowTag(), rows, i, plane.output_columns);
    GradientBlocks(ScalarTag(), rows, i, plane.output_columns);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MaxOfTwoByTwo);
HWY_EXPORT(MaxOfTwoByTwoGradient);

void MaxOfTwoByTwo(const TwoByTwoPlane& plane, const float* x, float* y) {
  HWY_DYNAMIC_DISPATCH(MaxOfTwoByTwo)(plane, x, y);
}

void MaxOfTwoByTwoGradient(const TwoByTwoPlane& plane, const float* x, const float* y,
                           const float* dy, float* dx) {
  HWY_DYNAMIC_DISPATCH(MaxOfTwoByTwoGradient)(plane, x, y, dy, dx);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
