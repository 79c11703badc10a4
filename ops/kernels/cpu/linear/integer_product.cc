#include "ops/kernels/cpu/linear/integer_product.h"

#include <algorithm>

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/linear/integer_product.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using WordTag = hn::ScalableTag<int16_t>;
using SumTag = hn::RepartitionToWide<WordTag>;
using SumVector = hn::Vec<SumTag>;

HWY_INLINE int32_t Total(SumVector even, SumVector odd) {
  const SumTag d;
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

// One row of A with four rows of B, so that a vector of A is loaded once for all.
HWY_INLINE void FourProducts(const int16_t* a, const int16_t* b, int64_t k, int32_t* c) {
  const WordTag d;
  const SumTag ds;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  SumVector low0 = hn::Zero(ds), low1 = low0, low2 = low0, low3 = low0;
  SumVector high0 = low0, high1 = low0, high2 = low0, high3 = low0;
  for (int64_t l = 0; l < k; l += lanes) {
    const auto x = hn::LoadU(d, a + l);
    low0 = hn::ReorderWidenMulAccumulate(ds, x, hn::LoadU(d, b + l), low0, high0);
    low1 = hn::ReorderWidenMulAccumulate(ds, x, hn::LoadU(d, b + k + l), low1, high1);
    low2 = hn::ReorderWidenMulAccumulate(ds, x, hn::LoadU(d, b + 2 * k + l), low2, high2);
    low3 = hn::ReorderWidenMulAccumulate(ds, x, hn::LoadU(d, b + 3 * k + l), low3, high3);
  }
  c[0] = Total(low0, high0);
  c[1] = Total(low1, high1);
  c[2] = Total(low2, high2);
  c[3] = Total(low3, high3);
}

HWY_INLINE int32_t OneProduct(const int16_t* a, const int16_t* b, int64_t k) {
  const WordTag d;
  const SumTag ds;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  SumVector low = hn::Zero(ds);
  SumVector high = low;
  for (int64_t l = 0; l < k; l += lanes) {
    low = hn::ReorderWidenMulAccumulate(ds, hn::LoadU(d, a + l), hn::LoadU(d, b + l), low, high);
  }
  return Total(low, high);
}

// Tiles of B stay in the first-level cache while all rows of A pass.
void Product(const int16_t* a, const int16_t* b, int64_t m, int64_t n, int64_t k, int32_t* c,
             int64_t c_stride) {
  constexpr int64_t kTile = 16;
  for (int64_t tile = 0; tile < n; tile += kTile) {
    const int64_t end = std::min(n, tile + kTile);
    for (int64_t i = 0; i < m; ++i) {
      int64_t j = tile;
      for (; j + 4 <= end; j += 4) FourProducts(a + i * k, b + j * k, k, c + i * c_stride + j);
      for (; j < end; ++j) c[i * c_stride + j] = OneProduct(a + i * k, b + j * k, k);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
namespace {

template <typename T>
void Widen(const T* x, int64_t stride, int32_t zero, int64_t n, int16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<int16_t>(x[i * stride] - zero);
  std::fill(out + n, out + PaddedLength(n), int16_t{0});
}

}  // namespace

HWY_EXPORT(Product);

void IntegerProduct(const int16_t* a, const int16_t* b, int64_t m, int64_t n, int64_t k, int32_t* c,
                    int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(Product)(a, b, m, n, k, c, c_stride);
}

void WidenRow(const uint8_t* x, int64_t stride, int32_t zero, int64_t n, int16_t* out) {
  Widen(x, stride, zero, n, out);
}
void WidenRow(const int8_t* x, int64_t stride, int32_t zero, int64_t n, int16_t* out) {
  Widen(x, stride, zero, n, out);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
