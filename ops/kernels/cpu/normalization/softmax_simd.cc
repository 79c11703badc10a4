#include "ops/kernels/cpu/normalization/softmax_simd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/normalization/softmax_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/reduction/reduce_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

using D = FloatTag;
using V = FloatVector;

// The first `count` lanes, or all.
HWY_INLINE void StoreUpTo(D d, V value, float* to, size_t count) {
  if (count == hn::Lanes(d)) return hn::StoreU(value, d, to);
  StorePart(d, value, to, count);
}

// ---- Rows.

float Largest(const float* x, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  V largest = lowest;
  V other = lowest;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    largest = hn::Max(largest, hn::LoadU(d, x + i));
    other = hn::Max(other, hn::LoadU(d, x + i + lanes));
  }
  largest = hn::Max(largest, other);
  for (; i + lanes <= n; i += lanes) largest = hn::Max(largest, hn::LoadU(d, x + i));
  if (i < n) {
    const V last = LoadPart(d, x + i, n - i);
    largest = hn::Max(largest, hn::IfThenElse(hn::FirstN(d, n - i), last, lowest));
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// e^(x - largest) summed, and stored in `out` unless that is null.
template <bool kStore>
HWY_INLINE double SumExp(const float* x, float largest, float* out, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V shift = hn::Set(d, largest);
  return SumVectors(n, [&](size_t i, size_t count) HWY_ATTR {
    const V e = ExpOfNegative(d, hn::Sub(LoadUpTo(d, x + i, count), shift));
    if (count == lanes) {
      if (kStore) hn::StoreU(e, d, out + i);
      return e;
    }
    if (kStore) StorePart(d, e, out + i, count);
    return hn::IfThenElseZero(hn::FirstN(d, count), e);
  });
}

void SoftmaxRow(const float* x, float* out, size_t n) {
  const D d;
  const double sum = SumExp<true>(x, Largest(x, n), out, n);
  const V scale = hn::Set(d, static_cast<float>(1 / sum));
  MapOne(out, out, n, [&](D, V v) HWY_ATTR { return hn::Mul(v, scale); });
}

// x + i as a vector; below all numbers in the lanes behind x + n.
HWY_INLINE V LoadOrLowest(const float* x, size_t i, size_t n) {
  const D d;
  if (i + hn::Lanes(d) <= n) return hn::LoadU(d, x + i);
  const V lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::FirstN(d, n - i), LoadPart(d, x + i, n - i), lowest);
}

// A row of at most one vector.
HWY_INLINE void SoftmaxVector(const float* x, float* out, size_t n) {
  const D d;
  const V values = LoadOrLowest(x, 0, n);
  const V e = ExpOfNegative(d, hn::Sub(values, hn::MaxOfLanes(d, values)));
  const V y = hn::Mul(e, hn::Div(hn::Set(d, 1.0f), hn::SumOfLanes(d, e)));
  StoreUpTo(d, y, out, n);
}

// A row of few vectors, or two at once: most of its time would go into waiting for the one number
// that the row's vectors come down to, its largest element or its sum. The bits of a row are the
// same alone and beside another.
template <bool kTwo>
HWY_INLINE void SoftmaxShortRows(const float* x, float* out, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const float* const x1 = x + n;
  float* const out1 = out + n;
  V largest = hn::LoadU(d, x);
  V largest1 = kTwo ? hn::LoadU(d, x1) : largest;
  for (size_t i = lanes; i < n; i += lanes) {
    largest = hn::Max(largest, LoadOrLowest(x, i, n));
    if (kTwo) largest1 = hn::Max(largest1, LoadOrLowest(x1, i, n));
  }
  largest = hn::MaxOfLanes(d, largest);
  largest1 = hn::MaxOfLanes(d, largest1);
  V sum = hn::Zero(d);
  V sum1 = sum;
  const auto add = [&](const float* from, size_t i, V shift, float* to, V& total) HWY_ATTR {
    const V e = ExpOfNegative(d, hn::Sub(LoadOrLowest(from, i, n), shift));
    total = hn::Add(total, e);
    StoreUpTo(d, e, to + i, std::min(lanes, n - i));
  };
  for (size_t i = 0; i < n; i += lanes) {
    add(x, i, largest, out, sum);
    if (kTwo) add(x1, i, largest1, out1, sum1);
  }
  const V one = hn::Set(d, 1.0f);
  const V scale = hn::Div(one, hn::SumOfLanes(d, sum));
  const V scale1 = hn::Div(one, hn::SumOfLanes(d, sum1));
  const auto multiply = [&](float* to, size_t i, V by) HWY_ATTR {
    const size_t count = std::min(lanes, n - i);
    StoreUpTo(d, hn::Mul(LoadUpTo(d, to + i, count), by), to + i, count);
  };
  for (size_t i = 0; i < n; i += lanes) {
    multiply(out, i, scale);
    if (kTwo) multiply(out1, i, scale1);
  }
}

void SoftmaxRowsOf(const float* x, float* out, int64_t rows, size_t n) {
  constexpr size_t kMaxVectors = 32;
  const size_t lanes = hn::Lanes(D());
  if (n <= lanes) {
    for (int64_t r = 0; r < rows; ++r) SoftmaxVector(x + r * n, out + r * n, n);
    return;
  }
  if (n > kMaxVectors * lanes) {
    for (int64_t r = 0; r < rows; ++r) SoftmaxRow(x + r * n, out + r * n, n);
    return;
  }
  int64_t r = 0;
  for (; r + 2 <= rows; r += 2) SoftmaxShortRows<true>(x + r * n, out + r * n, n);
  if (r < rows) SoftmaxShortRows<false>(x + r * n, out + r * n, n);
}

void LogSoftmaxRow(const float* x, float* out, size_t n) {
  const D d;
  const float largest = Largest(x, n);
  const V log_sum = hn::Set(d, static_cast<float>(std::log(SumExp<false>(x, largest, nullptr, n))));
  const V shift = hn::Set(d, largest);
  MapOne(x, out, n, [&](D, V v) HWY_ATTR { return hn::Sub(hn::Sub(v, shift), log_sum); });
}

void SoftmaxGradRow(const float* dy, const float* y, float* out, size_t n) {
  const D d;
  if (n <= hn::Lanes(d)) {
    const V g = LoadUpTo(d, dy, n);
    const V p = LoadUpTo(d, y, n);
    const V mean1 = hn::SumOfLanes(d, hn::Mul(g, p));
    return StoreUpTo(d, hn::Mul(p, hn::Sub(g, mean1)), out, n);
  }
  const double sum = SumVectors(n, [&](size_t i, size_t count) HWY_ATTR {
    return hn::Mul(LoadUpTo(d, dy + i, count), LoadUpTo(d, y + i, count));
  });
  const V mean = hn::Set(d, static_cast<float>(sum));
  MapTwo(dy, y, out, n, [&](D, V g, V p) HWY_ATTR { return hn::Mul(p, hn::Sub(g, mean)); });
}

void LogSoftmaxGradRow(const float* dy, const float* y, float* out, size_t n) {
  const D d;
  const V sum = hn::Set(d, static_cast<float>(SumVectors(n, [&](size_t i, size_t count) HWY_ATTR {
                          return LoadUpTo(d, dy + i, count);
                        })));
  MapTwo(dy, y, out, n,
         [&](D d1, V g, V log_p) HWY_ATTR { return hn::Sub(g, hn::Mul(Exp(d1, log_p), sum)); });
}

void Rows(SoftmaxOp op, const float* a, const float* b, float* out, int64_t rows, int64_t size) {
  if (op == SoftmaxOp::kSoftmax) return SoftmaxRowsOf(a, out, rows, size);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t first = r * size;
    switch (op) {
      case SoftmaxOp::kSoftmax:  // above
        break;
      case SoftmaxOp::kLogSoftmax:
        LogSoftmaxRow(a + first, out + first, size);
        break;
      case SoftmaxOp::kSoftmaxGrad:
        SoftmaxGradRow(a + first, b + first, out + first, size);
        break;
      case SoftmaxOp::kLogSoftmaxGrad:
        LogSoftmaxGradRow(a + first, b + first, out + first, size);
        break;
    }
  }
}

// ---- Columns: `count` of them in one vector.

// The sum over k < size of fn(k * stride), in two levels, so that long columns keep their accuracy.
template <class Fn>
HWY_INLINE V SumDown(int64_t size, int64_t stride, Fn fn) {
  constexpr int64_t kBlock = 128;
  const D d;
  V total = hn::Zero(d);
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    V sum = hn::Zero(d);
    const int64_t end = std::min(size, begin + kBlock);
    for (int64_t k = begin; k < end; ++k) sum = hn::Add(sum, fn(k * stride));
    total = hn::Add(total, sum);
  }
  return total;
}

HWY_INLINE V LargestDown(const float* x, size_t count, int64_t size, int64_t stride) {
  const D d;
  V largest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t k = 0; k < size; ++k) {
    largest = hn::Max(largest, LoadUpTo(d, x + k * stride, count));
  }
  return largest;
}

HWY_INLINE V SumExpDown(const float* x, V largest, size_t count, int64_t size, int64_t stride) {
  const D d;
  return SumDown(size, stride, [&](int64_t at) HWY_ATTR {
    return ExpOfNegative(d, hn::Sub(LoadUpTo(d, x + at, count), largest));
  });
}

void SoftmaxColumnsOf(const float* x, float* out, size_t count, int64_t size, int64_t stride) {
  const D d;
  const V largest = LargestDown(x, count, size, stride);
  const V sum = SumDown(size, stride, [&](int64_t at) HWY_ATTR {
    const V e = ExpOfNegative(d, hn::Sub(LoadUpTo(d, x + at, count), largest));
    StoreUpTo(d, e, out + at, count);
    return e;
  });
  const V scale = hn::Div(hn::Set(d, 1.0f), sum);
  for (int64_t k = 0; k < size; ++k) {
    float* const at = out + k * stride;
    StoreUpTo(d, hn::Mul(LoadUpTo(d, at, count), scale), at, count);
  }
}

void LogSoftmaxColumnsOf(const float* x, float* out, size_t count, int64_t size, int64_t stride) {
  const D d;
  const V largest = LargestDown(x, count, size, stride);
  const V log_sum = Log(d, SumExpDown(x, largest, count, size, stride));
  for (int64_t k = 0; k < size; ++k) {
    const V shifted = hn::Sub(LoadUpTo(d, x + k * stride, count), largest);
    StoreUpTo(d, hn::Sub(shifted, log_sum), out + k * stride, count);
  }
}

void BackwardColumns(bool log, const float* dy, const float* y, float* out, size_t count,
                     int64_t size, int64_t stride) {
  const D d;
  const V sum = SumDown(size, stride, [&](int64_t at) HWY_ATTR {
    const V g = LoadUpTo(d, dy + at, count);
    return log ? g : hn::Mul(g, LoadUpTo(d, y + at, count));
  });
  for (int64_t k = 0; k < size; ++k) {
    const V g = LoadUpTo(d, dy + k * stride, count);
    const V p = LoadUpTo(d, y + k * stride, count);
    const V dx = log ? hn::Sub(g, hn::Mul(Exp(d, p), sum)) : hn::Mul(p, hn::Sub(g, sum));
    StoreUpTo(d, dx, out + k * stride, count);
  }
}

void Columns(SoftmaxOp op, const float* a, const float* b, float* out, int64_t columns,
             int64_t size, int64_t stride) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool log = op == SoftmaxOp::kLogSoftmaxGrad;
  for (int64_t c = 0; c < columns; c += lanes) {
    const size_t count = static_cast<size_t>(std::min(lanes, columns - c));
    if (op == SoftmaxOp::kSoftmax) {
      SoftmaxColumnsOf(a + c, out + c, count, size, stride);
    } else if (op == SoftmaxOp::kLogSoftmax) {
      LogSoftmaxColumnsOf(a + c, out + c, count, size, stride);
    } else {
      BackwardColumns(log, a + c, b + c, out + c, count, size, stride);
    }
  }
}

LogSumExpParts LogSumExp(const float* x, int64_t size) {
  const float largest = Largest(x, size);
  return {largest, SumExp<false>(x, largest, nullptr, size)};
}

void LogSumExpColumns(const float* x, int64_t columns, int64_t size, int64_t stride, float* largest,
                      float* sums) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < columns; c += lanes) {
    const size_t count = static_cast<size_t>(std::min(lanes, columns - c));
    const V top = LargestDown(x + c, count, size, stride);
    StoreUpTo(d, top, largest + c, count);
    StoreUpTo(d, SumExpDown(x + c, top, count, size, stride), sums + c, count);
  }
}

void ScaledExpRow(const float* x, float shift, float scale, float* out, int64_t size) {
  const D d;
  const V shifts = hn::Set(d, shift);
  const V scales = hn::Set(d, scale);
  MapOne(x, out, size,
         [&](D d1, V v) HWY_ATTR { return hn::Mul(Exp(d1, hn::Sub(v, shifts)), scales); });
}

void ScaledExpColumns(const float* x, const float* shifts, const float* scales, float* out,
                      int64_t columns, int64_t size, int64_t stride) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < columns; c += lanes) {
    const size_t count = static_cast<size_t>(std::min(lanes, columns - c));
    const V shift = LoadUpTo(d, shifts + c, count);
    const V scale = LoadUpTo(d, scales + c, count);
    for (int64_t k = 0; k < size; ++k) {
      const V e = Exp(d, hn::Sub(LoadUpTo(d, x + k * stride + c, count), shift));
      StoreUpTo(d, hn::Mul(e, scale), out + k * stride + c, count);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(Rows);
HWY_EXPORT(Columns);
HWY_EXPORT(LogSumExp);
HWY_EXPORT(LogSumExpColumns);
HWY_EXPORT(ScaledExpRow);
HWY_EXPORT(ScaledExpColumns);

void SoftmaxRows(SoftmaxOp op, const float* a, const float* b, float* out, int64_t rows,
                 int64_t size) {
  HWY_DYNAMIC_DISPATCH(Rows)(op, a, b, out, rows, size);
}

void SoftmaxColumns(SoftmaxOp op, const float* a, const float* b, float* out, int64_t columns,
                    int64_t size, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(Columns)(op, a, b, out, columns, size, stride);
}

LogSumExpParts LogSumExpOfRow(const float* x, int64_t size) {
  return HWY_DYNAMIC_DISPATCH(LogSumExp)(x, size);
}

void LogSumExpOfColumns(const float* x, int64_t columns, int64_t size, int64_t stride,
                        float* largest, float* sums) {
  HWY_DYNAMIC_DISPATCH(LogSumExpColumns)(x, columns, size, stride, largest, sums);
}

void ScaledExpOfRow(const float* x, float shift, float scale, float* out, int64_t size) {
  HWY_DYNAMIC_DISPATCH(ScaledExpRow)(x, shift, scale, out, size);
}

void ScaledExpOfColumns(const float* x, const float* shifts, const float* scales, float* out,
                        int64_t columns, int64_t size, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(ScaledExpColumns)(x, shifts, scales, out, columns, size, stride);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
