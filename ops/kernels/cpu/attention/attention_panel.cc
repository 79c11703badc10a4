#include "ops/kernels/cpu/attention/attention_panel.h"

#include <limits>

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/attention/attention_panel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/attention/attention_panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

int64_t LanesOfPanel() { return 2 * PanelLanes(); }

size_t ScratchOfAttend(int64_t key_size, int64_t value_size) {
  const int64_t rows = 2 * PanelLanes();
  return WholeLines(rows * key_size) + WholeLines(rows * value_size) + rows * kPanelKeys +
         kMaskScratch;
}

// The softmax of the blocks so far: the largest score of each row, and the sum of its powers
// relative to that.
struct RunningSoftmax {
  HWY_ALIGN float largest[kMaxPanelRows];
  HWY_ALIGN float sums[kMaxPanelRows];
  HWY_ALIGN float factors[kMaxPanelRows];  // of what was summed before the last block

  HWY_INLINE explicit RunningSoftmax(int64_t rows) {
    std::fill(largest, largest + rows, kNoScore);
    std::fill(sums, sums + rows, 0.0f);
    std::fill(factors, factors + rows, 0.0f);
  }

  // Scores [count][stride] become powers.
  HWY_INLINE void Take(int64_t count, int64_t stride, float* scores) {
    const PanelTag d;
    const int64_t lanes = PanelLanes();
    for (int64_t v = 0; v < stride; v += lanes) {
      const PanelVector before = hn::Load(d, largest + v);
      PanelVector top = before;
      float* const from = scores + v;
      for (int64_t k = 0; k < count; ++k) top = hn::Max(top, hn::Load(d, from + k * stride));
      // Of nothing but minus infinity, powers are zero.
      const PanelVector shift = hn::IfThenZeroElse(hn::Eq(top, hn::Set(d, kNoScore)), top);
      const PanelVector factor = ExpOfNegative(d, hn::Sub(before, shift));
      PanelVector even = hn::Zero(d);
      PanelVector odd = even;
      int64_t k = 0;
      const auto power = [&](int64_t at) HWY_ATTR {
        const PanelVector e = ExpOfNegative(d, hn::Sub(hn::Load(d, from + at * stride), shift));
        hn::Store(e, d, from + at * stride);
        return e;
      };
      for (; k + 2 <= count; k += 2) {
        even = hn::Add(even, power(k));
        odd = hn::Add(odd, power(k + 1));
      }
      if (k < count) even = hn::Add(even, power(k));
      const PanelVector sum = hn::MulAdd(hn::Load(d, sums + v), factor, hn::Add(even, odd));
      hn::Store(top, d, largest + v);
      hn::Store(sum, d, sums + v);
      hn::Store(factor, d, factors + v);
    }
  }

  // `factors` become what results are multiplied with. Writes the logarithms of sums.
  HWY_INLINE void Finish(int64_t stride, float* log_sums) {
    const PanelTag d;
    const PanelVector zero = hn::Zero(d);
    for (int64_t v = 0; v < stride; v += PanelLanes()) {
      const PanelVector sum = hn::Load(d, sums + v);
      const auto is_empty = hn::Eq(sum, zero);
      hn::Store(hn::IfThenElse(is_empty, zero, hn::Div(hn::Set(d, 1.0f), sum)), d, factors + v);
      const PanelVector logs = hn::Add(hn::Load(d, largest + v), Log(d, sum));
      const PanelVector never = hn::Set(d, std::numeric_limits<float>::infinity());
      hn::Store(hn::IfThenElse(is_empty, never, logs), d, log_sums + v);
    }
  }
};

void Attend(const AttentionPanel& panel, const AttentionResult& result, float* scratch) {
  const PanelRowsAsLanes rows(panel);
  const PanelKeys keys(panel);
  const int64_t stride = rows.stride;
  float* const queries = scratch;
  float* const sums = queries + WholeLines(stride * panel.key_size);
  float* const scores = sums + WholeLines(stride * panel.value_size);
  float* const mask_scratch = scores + stride * kPanelKeys;
  RowsToLanes(rows.vectors, rows.queries, panel.key_size, panel.scale, queries, stride);
  RunningSoftmax softmax(stride);
  PanelFrom from = PanelFrom::kZero;
  for (int64_t first = keys.first_block(); first < keys.end; first += kPanelKeys) {
    const int64_t count = std::min(kPanelKeys, keys.end - first);
    RawScores(panel, rows, queries, first, count, scores);
    BiasScores(panel, rows, keys, first, count, scores, mask_scratch);
    softmax.Take(count, stride, scores);
    PanelProduct product{panel.values + first * panel.value_stride,
                         panel.value_stride,
                         scores,
                         stride,
                         sums,
                         stride,
                         panel.value_size,
                         count};
    product.from = from;
    product.factors = softmax.factors;
    MultiplyPanel<PanelLies::kByStep>(rows.vectors, product);
    from = PanelFrom::kScaledResult;
  }
  if (from == PanelFrom::kZero) std::fill(sums, sums + stride * panel.value_size, 0.0f);
  HWY_ALIGN float log_sums[kMaxPanelRows];
  softmax.Finish(stride, log_sums);
  LanesToRows(sums, stride, panel.value_size, softmax.factors, result.rows, panel.rows);
  for (int r = 0; r < panel.rows; ++r) {
    if (result.log_sums[r] != nullptr) *result.log_sums[r] = log_sums[r];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(LanesOfPanel);
HWY_EXPORT(ScratchOfAttend);
HWY_EXPORT(Attend);

int PanelRows() { return static_cast<int>(HWY_DYNAMIC_DISPATCH(LanesOfPanel)()); }

size_t AttendPanelScratch(int64_t key_size, int64_t value_size) {
  return HWY_DYNAMIC_DISPATCH(ScratchOfAttend)(key_size, value_size);
}

void AttendPanel(const AttentionPanel& panel, const AttentionResult& result, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Attend)(panel, result, scratch);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
