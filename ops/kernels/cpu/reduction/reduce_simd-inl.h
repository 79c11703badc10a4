// Long sums of float32 vectors, for files that Highway compiles once per instruction set.

// Included once per target: see foreach_target.h.
#if defined(WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_SIMD_INL_H_
#undef WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_SIMD_INL_H_
#else
#define WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_SIMD_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// The sum over i < n of the lanes of vector_at(i, count), which yields the elements [i, i + count)
// and zeros in other lanes. Blocks of 4096 elements are added in four float32 vectors, blocks in
// double.
template <class Fn>
HWY_INLINE double SumVectors(size_t n, Fn vector_at) {
  constexpr size_t kBlock = 4096;
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  double total = 0;
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t end = std::min(n, begin + kBlock);
    FloatVector a = hn::Zero(d);
    FloatVector b = a;
    FloatVector c = a;
    FloatVector e = a;
    size_t i = begin;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      a = hn::Add(a, vector_at(i, lanes));
      b = hn::Add(b, vector_at(i + lanes, lanes));
      c = hn::Add(c, vector_at(i + 2 * lanes, lanes));
      e = hn::Add(e, vector_at(i + 3 * lanes, lanes));
    }
    for (; i + lanes <= end; i += lanes) a = hn::Add(a, vector_at(i, lanes));
    if (i < end) b = hn::Add(b, vector_at(i, end - i));
    const FloatVector sum = hn::Add(hn::Add(a, b), hn::Add(c, e));
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return total;
}

// The vector at x + i: all lanes, or the first `count` and zeros.
HWY_INLINE FloatVector LoadUpTo(FloatTag d, const float* from, size_t count) {
  return count == hn::Lanes(d) ? hn::LoadU(d, from) : LoadPart(d, from, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
