// What the forward and the backward pass of a panel of attention share: products of small matrices,
// rows to lanes and back, and the scores of a block of keys.

// Included once per target: see foreach_target.h.
#if defined(WEFT_OPS_KERNELS_CPU_ATTENTION_ATTENTION_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_KERNELS_CPU_ATTENTION_ATTENTION_PANEL_INL_H_
#undef WEFT_OPS_KERNELS_CPU_ATTENTION_ATTENTION_PANEL_INL_H_
#else
#define WEFT_OPS_KERNELS_CPU_ATTENTION_ATTENTION_PANEL_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "ops/kernels/cpu/attention/attention_panel.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

using PanelTag = FloatTag;
using PanelVector = FloatVector;

inline constexpr float kNoScore = -std::numeric_limits<float>::infinity();

HWY_INLINE int64_t PanelLanes() { return static_cast<int64_t>(hn::Lanes(PanelTag())); }
// Floats on whole cache lines.
HWY_INLINE int64_t WholeLines(int64_t floats) { return (floats + 15) / 16 * 16; }

// ---- Products: c[i][j] = start + sum over p of a(i, p) b[p][j].

// How a(i, p) lies: rows of the product one after another, or steps.
enum class PanelLies { kByRow, kByStep };
// What a sum starts from: 0, c, or c times one factor for each column.
enum class PanelFrom { kZero, kResult, kScaledResult };

struct PanelProduct {
  const float* a;
  int64_t a_stride;  // from row to row, or from step to step
  const float* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  int64_t rows;
  int64_t depth;
  PanelFrom from = PanelFrom::kZero;
  const float* factors = nullptr;
};

// Accumulators of kRows rows of kVectors vectors, as members, so that each is a register.
template <int kRows, int kVectors>
struct PanelSums {
  PanelVector first, second;
  PanelSums<kRows - 1, kVectors> below;

  HWY_INLINE void Start(const PanelProduct& p, float* c) {
    const PanelTag d;
    const int64_t lanes = PanelLanes();
    if (p.from == PanelFrom::kZero) {
      first = hn::Zero(d);
      if (kVectors > 1) second = hn::Zero(d);
    } else {
      first = hn::Load(d, c);
      if (kVectors > 1) second = hn::Load(d, c + lanes);
      if (p.from == PanelFrom::kScaledResult) {
        first = hn::Mul(first, hn::Load(d, p.factors));
        if (kVectors > 1) second = hn::Mul(second, hn::Load(d, p.factors + lanes));
      }
    }
    below.Start(p, c + p.c_stride);
  }
  HWY_INLINE void Add(const float* a, int64_t next_row, PanelVector b0, PanelVector b1) {
    const PanelVector factor = hn::Set(PanelTag(), *a);
    first = hn::MulAdd(factor, b0, first);
    if (kVectors > 1) second = hn::MulAdd(factor, b1, second);
    below.Add(a + next_row, next_row, b0, b1);
  }
  HWY_INLINE void Finish(float* c, int64_t c_stride) const {
    const PanelTag d;
    hn::Store(first, d, c);
    if (kVectors > 1) hn::Store(second, d, c + PanelLanes());
    below.Finish(c + c_stride, c_stride);
  }
};
template <int kVectors>
struct PanelSums<0, kVectors> {
  HWY_INLINE void Start(const PanelProduct&, float*) {}
  HWY_INLINE void Add(const float*, int64_t, PanelVector, PanelVector) {}
  HWY_INLINE void Finish(float*, int64_t) const {}
};

template <int kRows, int kVectors, PanelLies kLies>
HWY_NOINLINE void MultiplyPanelTile(const PanelProduct& p, const float* HWY_RESTRICT a,
                                    float* HWY_RESTRICT c) {
  const PanelTag d;
  const int64_t lanes = PanelLanes();
  const int64_t next_row = kLies == PanelLies::kByRow ? p.a_stride : 1;
  const int64_t next_step = kLies == PanelLies::kByRow ? 1 : p.a_stride;
  const int64_t b_stride = p.b_stride;
  const float* HWY_RESTRICT b = p.b;
  PanelSums<kRows, kVectors> sums;
  sums.Start(p, c);
  for (int64_t step = p.depth; step > 0; --step) {
    const PanelVector b0 = hn::Load(d, b);
    const PanelVector b1 = kVectors > 1 ? hn::Load(d, b + lanes) : b0;
    sums.Add(a, next_row, b0, b1);
    a += next_step;
    b += b_stride;
  }
  sums.Finish(c, p.c_stride);
}

// As many rows as there are registers for: 16 of AVX2, 32 of AVX-512.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kPanelTileRows = 8;
#else
inline constexpr int kPanelTileRows = 6;
#endif

template <int kVectors, PanelLies kLies>
HWY_INLINE void MultiplyPanelVectors(const PanelProduct& p) {
  const int64_t next = kLies == PanelLies::kByRow ? p.a_stride : 1;
  int64_t i = 0;
  for (; i + kPanelTileRows <= p.rows; i += kPanelTileRows) {
    MultiplyPanelTile<kPanelTileRows, kVectors, kLies>(p, p.a + i * next, p.c + i * p.c_stride);
  }
  const float* a = p.a + i * next;
  float* c = p.c + i * p.c_stride;
  switch (p.rows - i) {
    case 1:
      return MultiplyPanelTile<1, kVectors, kLies>(p, a, c);
    case 2:
      return MultiplyPanelTile<2, kVectors, kLies>(p, a, c);
    case 3:
      return MultiplyPanelTile<3, kVectors, kLies>(p, a, c);
    case 4:
      return MultiplyPanelTile<4, kVectors, kLies>(p, a, c);
    case 5:
      return MultiplyPanelTile<5, kVectors, kLies>(p, a, c);
#if HWY_TARGET <= HWY_AVX3
    case 6:
      return MultiplyPanelTile<6, kVectors, kLies>(p, a, c);
    case 7:
      return MultiplyPanelTile<7, kVectors, kLies>(p, a, c);
#endif
    default:
      return;
  }
}

// A product of one or two vectors of columns.
template <PanelLies kLies>
HWY_INLINE void MultiplyPanel(int vectors, const PanelProduct& product) {
  if (vectors > 1) {
    MultiplyPanelVectors<2, kLies>(product);
  } else {
    MultiplyPanelVectors<1, kLies>(product);
  }
}

// ---- Rows of memory to lanes of vectors, and back.

#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE hn::Vec<D> LoadFours(D d, const float* const* rows, int64_t column) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, rows[0] + column);
  } else {
    // The vector has the four elements of every fourth row.
    constexpr int kHalf = static_cast<int>(hn::MaxLanes(D())) / 2;
    const hn::Half<D> half;
    return hn::Combine(d, LoadFours(half, rows + kHalf, column), LoadFours(half, rows, column));
  }
}
template <class D>
HWY_INLINE void StoreFours(D d, hn::Vec<D> value, float* const* rows, int64_t column) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(value, d, rows[0] + column);
  } else {
    constexpr int kHalf = static_cast<int>(hn::MaxLanes(D())) / 2;
    const hn::Half<D> half;
    StoreFours(half, hn::LowerHalf(half, value), rows, column);
    StoreFours(half, hn::UpperHalf(half, value), rows + kHalf, column);
  }
}

// Transposes the 4 by 4 matrices in the 128-bit parts of four vectors.
HWY_INLINE void TransposeFours(PanelVector& v0, PanelVector& v1, PanelVector& v2, PanelVector& v3) {
  const PanelTag d;
  const hn::Repartition<double, PanelTag> pairs;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, v0, v1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, v2, v3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, v0, v1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, v2, v3));
  v0 = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
  v1 = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
  v2 = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
  v3 = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
}
#endif

// lanes[column][r] = scale rows[r][column], for as many rows as the vectors have lanes, `stride`
// floats from column to column.
HWY_INLINE void RowsToLanes(int vectors, const float* const* rows, int64_t columns, float scale,
                            float* lanes, int64_t stride) {
  const int64_t count = PanelLanes();
#if HWY_TARGET != HWY_SCALAR
  const PanelTag d;
  const PanelVector factor = hn::Set(d, scale);
#endif
  for (int v = 0; v < vectors; ++v) {
    const float* const* from = rows + v * count;
    float* to = lanes + v * count;
    int64_t column = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; column + 4 <= columns; column += 4) {
      PanelVector v0 = LoadFours(d, from, column);
      PanelVector v1 = LoadFours(d, from + 1, column);
      PanelVector v2 = LoadFours(d, from + 2, column);
      PanelVector v3 = LoadFours(d, from + 3, column);
      TransposeFours(v0, v1, v2, v3);
      hn::Store(hn::Mul(v0, factor), d, to + column * stride);
      hn::Store(hn::Mul(v1, factor), d, to + (column + 1) * stride);
      hn::Store(hn::Mul(v2, factor), d, to + (column + 2) * stride);
      hn::Store(hn::Mul(v3, factor), d, to + (column + 3) * stride);
    }
#endif
    for (; column < columns; ++column) {
      for (int64_t r = 0; r < count; ++r) to[column * stride + r] = from[r][column] * scale;
    }
  }
}

// rows[r][column] = factors[r] lanes[column][r] of the first `count` rows.
HWY_INLINE void LanesToRows(const float* lanes, int64_t stride, int64_t columns,
                            const float* factors, float* const* rows, int64_t count) {
  const int64_t whole = PanelLanes();
#if HWY_TARGET != HWY_SCALAR
  const PanelTag d;
#endif
  for (int64_t first = 0; first < count; first += whole) {
    const float* from = lanes + first;
    float* const* to = rows + first;
    int64_t column = 0;
#if HWY_TARGET != HWY_SCALAR
    const PanelVector factor = hn::Load(d, factors + first);
    for (; first + whole <= count && column + 4 <= columns; column += 4) {
      PanelVector v0 = hn::Mul(factor, hn::Load(d, from + column * stride));
      PanelVector v1 = hn::Mul(factor, hn::Load(d, from + (column + 1) * stride));
      PanelVector v2 = hn::Mul(factor, hn::Load(d, from + (column + 2) * stride));
      PanelVector v3 = hn::Mul(factor, hn::Load(d, from + (column + 3) * stride));
      TransposeFours(v0, v1, v2, v3);
      StoreFours(d, v0, to, column);
      StoreFours(d, v1, to + 1, column);
      StoreFours(d, v2, to + 2, column);
      StoreFours(d, v3, to + 3, column);
    }
#endif
    const int64_t rest = std::min(whole, count - first);
    for (; column < columns; ++column) {
      for (int64_t r = 0; r < rest; ++r) {
        to[r][column] = factors[first + r] * from[column * stride + r];
      }
    }
  }
}

// ---- The scores of a block.

// Which keys the rows of a panel may attend together.
struct PanelKeys {
  int64_t begin, end;                // by any row
  int64_t common_begin, common_end;  // by every row

  HWY_INLINE explicit PanelKeys(const AttentionPanel& panel) {
    begin = common_begin = panel.begin[0];
    end = common_end = panel.end[0];
    for (int r = 1; r < panel.rows; ++r) {
      begin = std::min<int64_t>(begin, panel.begin[r]);
      end = std::max<int64_t>(end, panel.end[r]);
      common_begin = std::max<int64_t>(common_begin, panel.begin[r]);
      common_end = std::min<int64_t>(common_end, panel.end[r]);
    }
  }
  // Where the blocks of all panels may begin, so that a row's blocks do not depend on its
  // neighbours.
  HWY_INLINE int64_t first_block() const { return begin / kPanelKeys * kPanelKeys; }
  HWY_INLINE bool AllAttend(int64_t first, int64_t count) const {
    return common_begin <= first && first + count <= common_end;
  }
};

// A panel as lanes: rows beyond the last are copies of the first, whose results nobody reads.
struct PanelRowsAsLanes {
  int vectors;
  int64_t stride;  // lanes of the panel
  const float* queries[kMaxPanelRows];
  HWY_ALIGN int32_t begin[kMaxPanelRows];
  HWY_ALIGN int32_t end[kMaxPanelRows];
  int64_t mask_rows[kMaxPanelRows];
  bool shares_mask;  // by all rows

  HWY_INLINE explicit PanelRowsAsLanes(const AttentionPanel& panel) {
    const int64_t lanes = PanelLanes();
    vectors = panel.rows > lanes ? 2 : 1;
    stride = vectors * lanes;
    shares_mask = true;
    for (int64_t r = 0; r < stride; ++r) {
      const int64_t from = r < panel.rows ? r : 0;
      queries[r] = panel.queries[from];
      begin[r] = panel.begin[from];
      end[r] = panel.end[from];
      mask_rows[r] = panel.mask == nullptr ? 0 : panel.mask_rows[from];
      shares_mask &= mask_rows[r] == mask_rows[0];
    }
  }
};

// Scratch memory of masks: a block as rows, and as lanes.
inline constexpr int64_t kMaskScratch = 2 * kMaxPanelRows * kPanelKeys;

HWY_INLINE PanelVector AddMask(PanelTag d, PanelVector score, PanelVector bias) {
  const PanelVector never = hn::Set(d, kNoScore);
  return hn::IfThenElse(hn::Eq(bias, never), never, hn::Add(score, bias));
}

// Adds the mask to scores [count][stride] of keys `first` and on.
HWY_INLINE void AddMaskBlock(const AttentionPanel& panel, const PanelRowsAsLanes& rows,
                             int64_t first, int64_t count, float* scores, float* scratch) {
  const PanelTag d;
  const int64_t lanes = PanelLanes();
  float* const loaded = scratch;
  float* const bias = scratch + kMaxPanelRows * kPanelKeys;
  const auto load = [&](int64_t r, float* to) HWY_ATTR {
    const int64_t offset = rows.mask_rows[r] + first * panel.mask_stride;
    if (panel.load_mask != nullptr) {
      return panel.load_mask(panel.mask, offset, panel.mask_stride, count, to);
    }
    std::memcpy(to, static_cast<const float*>(panel.mask) + offset, count * sizeof(float));
  };
  if (rows.shares_mask) {
    load(0, loaded);
    for (int64_t k = 0; k < count; ++k) {
      const PanelVector one = hn::Set(d, loaded[k]);
      for (int64_t at = k * rows.stride; at < (k + 1) * rows.stride; at += lanes) {
        hn::Store(AddMask(d, hn::Load(d, scores + at), one), d, scores + at);
      }
    }
    return;
  }
  const float* from[kMaxPanelRows];
  for (int64_t r = 0; r < rows.stride; ++r) {
    if (panel.load_mask == nullptr) {
      from[r] = static_cast<const float*>(panel.mask) + rows.mask_rows[r] + first;
    } else if (r < panel.rows) {
      load(r, loaded + r * kPanelKeys);
      from[r] = loaded + r * kPanelKeys;
    } else {
      from[r] = loaded;
    }
  }
  RowsToLanes(rows.vectors, from, count, 1.0f, bias, rows.stride);
  for (int64_t at = 0; at < count * rows.stride; at += lanes) {
    hn::Store(AddMask(d, hn::Load(d, scores + at), hn::Load(d, bias + at)), d, scores + at);
  }
}

// Minus infinity where a row may not attend a key.
HWY_INLINE void LimitBlock(const PanelRowsAsLanes& rows, int64_t first, int64_t count,
                           float* scores) {
  const PanelTag d;
  const hn::RebindToSigned<PanelTag> integers;
  const int64_t lanes = PanelLanes();
  const PanelVector never = hn::Set(d, kNoScore);
  for (int64_t v = 0; v < rows.stride; v += lanes) {
    const auto begin = hn::Load(integers, rows.begin + v);
    const auto end = hn::Load(integers, rows.end + v);
    for (int64_t k = 0; k < count; ++k) {
      const auto key = hn::Set(integers, static_cast<int32_t>(first + k));
      const auto outside = hn::Or(hn::Lt(key, begin), hn::Not(hn::Lt(key, end)));
      float* const at = scores + k * rows.stride + v;
      hn::Store(hn::IfThenElse(hn::RebindMask(d, outside), never, hn::Load(d, at)), d, at);
    }
  }
}

// Softcap(scale Q K^T) of keys [first, first + count), as [count][stride]. `queries`: scaled, as
// lanes.
HWY_INLINE void RawScores(const AttentionPanel& panel, const PanelRowsAsLanes& rows,
                          const float* queries, int64_t first, int64_t count, float* scores) {
  const PanelTag d;
  PanelProduct product{panel.keys + first * panel.key_stride,
                       panel.key_stride,
                       queries,
                       rows.stride,
                       scores,
                       rows.stride,
                       count,
                       panel.key_size};
  MultiplyPanel<PanelLies::kByRow>(rows.vectors, product);
  if (!(panel.softcap > 0)) return;
  const PanelVector cap = hn::Set(d, panel.softcap);
  for (int64_t at = 0; at < count * rows.stride; at += PanelLanes()) {
    const PanelVector angle = hn::Div(hn::Load(d, scores + at), cap);
    hn::Store(hn::Mul(cap, Tanh(d, angle)), d, scores + at);
  }
}

// What mask and ranges make of raw scores.
HWY_INLINE void BiasScores(const AttentionPanel& panel, const PanelRowsAsLanes& rows,
                           const PanelKeys& keys, int64_t first, int64_t count, float* scores,
                           float* mask_scratch) {
  if (panel.mask != nullptr) AddMaskBlock(panel, rows, first, count, scores, mask_scratch);
  if (!keys.AllAttend(first, count)) LimitBlock(rows, first, count, scores);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
