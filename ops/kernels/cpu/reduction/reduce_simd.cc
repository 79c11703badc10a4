#include "ops/kernels/cpu/reduction/reduce_simd.h"

#include <limits>

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/reduction/reduce_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/reduction/reduce_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

double Sum(const float* x, size_t n) {
  const FloatTag d;
  return SumVectors(n, [&](size_t i, size_t count) HWY_ATTR { return LoadUpTo(d, x + i, count); });
}

double SquaredDifferences(const float* a, const float* b, size_t n) {
  const FloatTag d;
  return SumVectors(n, [&](size_t i, size_t count) HWY_ATTR {
    const FloatVector difference = hn::Sub(LoadUpTo(d, a + i, count), LoadUpTo(d, b + i, count));
    return hn::Mul(difference, difference);
  });
}

double Magnitudes(const float* x, size_t n) {
  const FloatTag d;
  return SumVectors(
      n, [&](size_t i, size_t count) HWY_ATTR { return hn::Abs(LoadUpTo(d, x + i, count)); });
}

double Squares(const float* x, size_t n) {
  const FloatTag d;
  return SumVectors(n, [&](size_t i, size_t count) HWY_ATTR {
    const FloatVector v = LoadUpTo(d, x + i, count);
    return hn::Mul(v, v);
  });
}

// The element that `better(v, w)` chooses of all; NaN where there is one.
template <class Fn, class LanesFn>
HWY_INLINE float Extreme(const float* x, size_t n, float initial, Fn better, LanesFn of_lanes) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const FloatVector start = hn::Set(d, initial);
  FloatVector a = start;
  FloatVector b = start;
  FloatVector c = start;
  FloatVector e = start;
  auto nan = hn::IsNaN(start);
  const auto take = [&](FloatVector v, FloatVector& best) HWY_ATTR {
    nan = hn::Or(nan, hn::IsNaN(v));
    best = better(best, v);
  };
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    take(hn::LoadU(d, x + i), a);
    take(hn::LoadU(d, x + i + lanes), b);
    take(hn::LoadU(d, x + i + 2 * lanes), c);
    take(hn::LoadU(d, x + i + 3 * lanes), e);
  }
  for (; i + lanes <= n; i += lanes) take(hn::LoadU(d, x + i), a);
  if (i < n) take(hn::IfThenElse(hn::FirstN(d, n - i), LoadPart(d, x + i, n - i), start), b);
  if (!hn::AllFalse(d, nan)) return std::numeric_limits<float>::quiet_NaN();
  return hn::GetLane(of_lanes(better(better(a, b), better(c, e))));
}

float Maximum(const float* x, size_t n) {
  return Extreme(
      x, n, -std::numeric_limits<float>::infinity(),
      [](FloatVector v, FloatVector w) HWY_ATTR { return hn::Max(v, w); },
      [](FloatVector v) HWY_ATTR { return hn::MaxOfLanes(FloatTag(), v); });
}

float Minimum(const float* x, size_t n) {
  return Extreme(
      x, n, std::numeric_limits<float>::infinity(),
      [](FloatVector v, FloatVector w) HWY_ATTR { return hn::Min(v, w); },
      [](FloatVector v) HWY_ATTR { return hn::MinOfLanes(FloatTag(), v); });
}

// Rows that are added in float32 before they go to the totals.
constexpr int64_t kRowBlock = 32;

// The columns of one vector, of which `columns` are wanted.
void SumVectorColumns(const float* x, int64_t rows, int64_t stride, size_t columns,
                      double* totals) {
  const FloatTag d;
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  for (int64_t begin = 0; begin < rows; begin += kRowBlock) {
    const int64_t end = std::min(rows, begin + kRowBlock);
    FloatVector sum = hn::Zero(d);
    for (int64_t r = begin; r < end; ++r) {
      sum = hn::Add(sum, LoadUpTo(d, x + r * stride, columns));
    }
    hn::Store(sum, d, lanes);
    for (size_t c = 0; c < columns; ++c) totals[c] += static_cast<double>(lanes[c]);
  }
}

// Four whole vectors of columns side by side.
void SumFourVectorColumns(const float* x, int64_t rows, int64_t stride, double* totals) {
  const FloatTag d;
  const size_t n = hn::Lanes(d);
  HWY_ALIGN float lanes[4 * hn::MaxLanes(d)];
  for (int64_t begin = 0; begin < rows; begin += kRowBlock) {
    const int64_t end = std::min(rows, begin + kRowBlock);
    FloatVector a = hn::Zero(d);
    FloatVector b = a;
    FloatVector c = a;
    FloatVector e = a;
    for (int64_t r = begin; r < end; ++r) {
      const float* row = x + r * stride;
      a = hn::Add(a, hn::LoadU(d, row));
      b = hn::Add(b, hn::LoadU(d, row + n));
      c = hn::Add(c, hn::LoadU(d, row + 2 * n));
      e = hn::Add(e, hn::LoadU(d, row + 3 * n));
    }
    hn::Store(a, d, lanes);
    hn::Store(b, d, lanes + n);
    hn::Store(c, d, lanes + 2 * n);
    hn::Store(e, d, lanes + 3 * n);
    for (size_t i = 0; i < 4 * n; ++i) totals[i] += static_cast<double>(lanes[i]);
  }
}

void Columns(const float* x, int64_t rows, int64_t stride, int64_t columns, double* totals) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + 4 * lanes <= columns; c += 4 * lanes) {
    SumFourVectorColumns(x + c, rows, stride, totals + c);
  }
  for (; c < columns; c += lanes) {
    SumVectorColumns(x + c, rows, stride, std::min(lanes, columns - c), totals + c);
  }
}

void Fill(float value, float* out, size_t n) {
  const FloatTag d;
  const FloatVector vector = hn::Set(d, value);
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(vector, d, out + i);
  if (i < n) StorePart(d, vector, out + i, n - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(Sum);
HWY_EXPORT(SquaredDifferences);
HWY_EXPORT(Magnitudes);
HWY_EXPORT(Squares);
HWY_EXPORT(Maximum);
HWY_EXPORT(Minimum);
HWY_EXPORT(Columns);
HWY_EXPORT(Fill);

double SumFloat(const float* x, size_t n) { return HWY_DYNAMIC_DISPATCH(Sum)(x, n); }

double SumOfSquaredDifferences(const float* a, const float* b, size_t n) {
  return HWY_DYNAMIC_DISPATCH(SquaredDifferences)(a, b, n);
}

double SumOfMagnitudes(const float* x, size_t n) { return HWY_DYNAMIC_DISPATCH(Magnitudes)(x, n); }

double SumOfSquares(const float* x, size_t n) { return HWY_DYNAMIC_DISPATCH(Squares)(x, n); }

double MaxFloat(const float* x, size_t n) { return HWY_DYNAMIC_DISPATCH(Maximum)(x, n); }

double MinFloat(const float* x, size_t n) { return HWY_DYNAMIC_DISPATCH(Minimum)(x, n); }

void SumColumns(const float* x, int64_t rows, int64_t stride, int64_t columns, double* totals) {
  HWY_DYNAMIC_DISPATCH(Columns)(x, rows, stride, columns, totals);
}

void FillFloat(float value, float* out, size_t n) { HWY_DYNAMIC_DISPATCH(Fill)(value, out, n); }

}  // namespace weft::cpu
#endif  // HWY_ONCE
