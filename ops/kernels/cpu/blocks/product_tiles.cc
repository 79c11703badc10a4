#include "ops/kernels/cpu/blocks/product_tiles.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/blocks/product_tiles.cc"
#include "hwy/foreach_target.h"
// Highway's headers come after.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// Sums of a tile fill the registers: 12 of 16, and 28 of 32 with AVX-512. The others hold a row of
// B and an element of A.
constexpr int kTileRows = HWY_TARGET <= HWY_AVX3 ? 14 : 6;
constexpr int kTileVectors = 2;
constexpr int kLanes = HWY_TARGET == HWY_SCALAR ? 1 : HWY_MAX_BYTES / sizeof(float);
constexpr int kTileColumns = kTileVectors * kLanes;
constexpr int kRowStep = (kTileRows + 7) / 8 * 8;
// A row that is not packed wants a pointer of its own, and there are 16 registers for these.
constexpr int kStridedRows = HWY_TARGET <= HWY_AVX3 ? 8 : 6;

ProductTile Tile() { return {kTileRows, kTileColumns, kRowStep, kStridedRows}; }

// ---- Packing.

#if HWY_TARGET != HWY_SCALAR
using QuarterTag = hn::CappedTag<float, 4>;

// Four elements of each of the lines i, i + 4, ... of a vector.
HWY_INLINE FloatVector LoadFours(const float* const* lines, int64_t k) {
  const QuarterTag d4;
#if HWY_MAX_BYTES >= 32
  const hn::CappedTag<float, 8> d8;
  const auto low = hn::Combine(d8, hn::LoadU(d4, lines[4] + k), hn::LoadU(d4, lines[0] + k));
#if HWY_MAX_BYTES >= 64
  const auto high = hn::Combine(d8, hn::LoadU(d4, lines[12] + k), hn::LoadU(d4, lines[8] + k));
  return hn::Combine(FloatTag(), high, low);
#else
  return low;
#endif
#else
  return hn::LoadU(d4, lines[0] + k);
#endif
}

// Of a vector of lines, each contiguous.
HWY_INLINE void PackLines(const float* const* lines, int64_t depth, float* to, int64_t step) {
  const FloatTag d;
  const hn::RepartitionToWide<FloatTag> d64;
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    const FloatVector r0 = LoadFours(lines, k), r1 = LoadFours(lines + 1, k);
    const FloatVector r2 = LoadFours(lines + 2, k), r3 = LoadFours(lines + 3, k);
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    float* const out = to + k * step;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, out);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, out + step);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, out + 2 * step);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, out + 3 * step);
  }
  for (; k < depth; ++k) {
    for (int i = 0; i < kLanes; ++i) to[k * step + i] = lines[i][k];
  }
}
#endif

// Lines that are contiguous.
void PackDeepLines(const float* from, int64_t line_stride, int64_t count, int64_t depth, float* to,
                   int64_t step) {
  for (int64_t first = 0; first < count; first += kLanes) {
    const float* lines[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      lines[i] = from + std::min<int64_t>(first + i, count - 1) * line_stride;
    }
#if HWY_TARGET == HWY_SCALAR
    for (int64_t k = 0; k < depth; ++k) to[k * step + first] = lines[0][k];
#else
    PackLines(lines, depth, to + first, step);
#endif
  }
}

// Lines side by side.
void PackFlatLines(const float* from, int64_t depth_stride, int64_t count, int64_t depth, float* to,
                   int64_t step) {
  const FloatTag d;
  // What is read behind a line is the beginning of the next.
  const int64_t behind = (kLanes - count % kLanes) % kLanes;
  const int64_t whole = behind <= depth_stride ? depth - 1 : 0;
  int64_t k = 0;
  for (; k < whole; ++k, from += depth_stride, to += step) {
    for (int64_t i = 0; i < count; i += kLanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  }
  for (; k < depth; ++k, from += depth_stride, to += step) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    if (i < count) hn::StoreU(LoadPart(d, from + i, count - i), d, to + i);
  }
}

void Pack(const float* from, int64_t line_stride, int64_t depth_stride, int64_t count,
          int64_t depth, float* to, int64_t step) {
  if (line_stride == 1) return PackFlatLines(from, depth_stride, count, depth, to, step);
  if (depth_stride == 1) return PackDeepLines(from, line_stride, count, depth, to, step);
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < count; ++i) {
      to[k * step + i] = from[i * line_stride + k * depth_stride];
    }
  }
}

// Rows of B are read from end to end, since memory is read ahead along them.
void PackAllPanels(const float* from, int64_t column_stride, int64_t depth_stride, int64_t columns,
                   int64_t depth, float* to, int64_t panel_stride) {
  const FloatTag d;
  const int64_t whole = column_stride == 1 ? columns / kTileColumns : 0;
  for (int64_t k = 0; k < depth && whole > 0; ++k) {
    const float* row = from + k * depth_stride;
    float* out = to + k * kTileColumns;
    for (int64_t p = 0; p < whole; ++p, row += kTileColumns, out += panel_stride) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        hn::Store(hn::LoadU(d, row + v * kLanes), d, out + v * kLanes);
      }
    }
  }
  for (int64_t j = whole * kTileColumns; j < columns; j += kTileColumns) {
    Pack(from + j * column_stride, column_stride, depth_stride,
         std::min<int64_t>(kTileColumns, columns - j), depth, to + j / kTileColumns * panel_stride,
         kTileColumns);
  }
}

// ---- Multiplying.

struct TilePlace {
  const float* a;
  int64_t a_row_stride;  // of an A that is read where it is
  int64_t a_depth_stride;
  const float* b;
  int64_t b_step;
  int64_t depth;
  int64_t whole_depth;  // so many rows of B can be read by whole vectors
  float alpha;
  const float* added;
  int64_t added_stride;
  float* y;
  int64_t y_stride;
  int64_t last_lanes;  // of the last vector of a row
};

// Whether A is packed, or read where it is.
enum class RowsAre : uint8_t { kPacked, kStrided };

// The sums of a tile. Registers are chosen by the compiler once loops over constants are unrolled.
template <int kRows, int kVectors, RowsAre kRowsAre>
struct TileSums {
  HWY_INLINE explicit TileSums(const TilePlace& tile) : a_depth_stride(tile.a_depth_stride) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      a[i] = tile.a + i * (kRowsAre == RowsAre::kPacked ? 1 : tile.a_row_stride);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::Zero(FloatTag());
    }
  }
  // Adds the products of one depth.
  HWY_INLINE void Add(const FloatVector (&row)[kVectors]) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const FloatVector factor =
          hn::Set(FloatTag(), kRowsAre == RowsAre::kPacked ? a[0][at + i] : a[i][at]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(factor, row[v], sums[i][v]);
    }
    at += kRowsAre == RowsAre::kPacked ? kRowStep : a_depth_stride;
  }

  const float* a[kRows];
  int64_t a_depth_stride;
  int64_t at = 0;
  FloatVector sums[kRows][kVectors];
};

template <int kRows, int kVectors, bool kIsPart, RowsAre kRowsAre>
void MultiplyTile(const TilePlace& tile) {
  const FloatTag d;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    hwy::Prefetch(tile.y + i * tile.y_stride);
    if (kVectors > 1) hwy::Prefetch(tile.y + i * tile.y_stride + kLanes);
  }
  TileSums<kRows, kVectors, kRowsAre> sums(tile);
  const float* HWY_RESTRICT b = tile.b;
  FloatVector row[kVectors];
  for (int64_t k = 0; k < tile.whole_depth; ++k, b += tile.b_step) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * kLanes);
    sums.Add(row);
  }
  for (int64_t k = tile.whole_depth; kIsPart && k < tile.depth; ++k, b += tile.b_step) {
#pragma GCC unroll 4
    for (int v = 0; v + 1 < kVectors; ++v) row[v] = hn::LoadU(d, b + v * kLanes);
    row[kVectors - 1] = LoadPart(d, b + (kVectors - 1) * kLanes, tile.last_lanes);
    sums.Add(row);
  }
  const FloatVector alpha = hn::Set(d, tile.alpha);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const bool is_part = kIsPart && v + 1 == kVectors;
      float* const y = tile.y + i * tile.y_stride + v * kLanes;
      FloatVector value = hn::Mul(alpha, sums.sums[i][v]);
      if (tile.added != nullptr) {
        const float* const added = tile.added + i * tile.added_stride + v * kLanes;
        value = hn::MulAdd(alpha, sums.sums[i][v],
                           is_part ? LoadPart(d, added, tile.last_lanes) : hn::LoadU(d, added));
      }
      if (is_part) {
        StorePart(d, value, y, tile.last_lanes);
      } else {
        hn::StoreU(value, d, y);
      }
    }
  }
}

using TileFunction = void (*)(const TilePlace&);

// By height less one.
template <int kVectors, bool kIsPart, RowsAre kRowsAre, size_t... kHeights>
constexpr std::array<TileFunction, sizeof...(kHeights)> TilesOf(std::index_sequence<kHeights...>) {
  return {MultiplyTile<static_cast<int>(kHeights) + 1, kVectors, kIsPart, kRowsAre>...};
}

template <RowsAre kRowsAre>
TileFunction ChooseTile(int64_t rows, int64_t columns) {
  constexpr int kMaxRows = kRowsAre == RowsAre::kPacked ? kTileRows : kStridedRows;
  using Heights = std::make_index_sequence<kMaxRows>;
  static constexpr std::array<TileFunction, kMaxRows> kTiles[2][2] = {
      {TilesOf<1, false, kRowsAre>(Heights()), TilesOf<1, true, kRowsAre>(Heights())},
      {TilesOf<2, false, kRowsAre>(Heights()), TilesOf<2, true, kRowsAre>(Heights())}};
  static_assert(kTileVectors == 2);
  return kTiles[columns > kLanes ? 1 : 0][columns % kLanes == 0 ? 0 : 1][rows - 1];
}

// How many rows of B can be read by whole vectors: what lies behind the columns of one is the
// beginning of the next.
int64_t WholeDepth(const BlockProduct& block, int64_t columns) {
  if (columns % kLanes == 0) return block.depth;
  const int64_t read = (columns + kLanes - 1) / kLanes * kLanes;
  const int64_t rows_behind = (read - columns + block.b_step - 1) / block.b_step;
  return std::max<int64_t>(block.depth - rows_behind, 0);
}

// A panel of B stays in the first-level cache while the panels of A pass, which stay in the second.
template <RowsAre kRowsAre>
void MultiplyPanels(const BlockProduct& block) {
  const RowPanels panels(block.rows, kRowsAre == RowsAre::kPacked ? kTileRows : kStridedRows);
  TilePlace tile{};
  tile.a_row_stride = block.a_row_stride;
  tile.a_depth_stride = block.a_depth_stride;
  tile.b_step = block.b_step;
  tile.depth = block.depth;
  tile.alpha = block.alpha;
  tile.added_stride = block.added_stride;
  tile.y_stride = block.y_stride;
  for (int64_t j = 0; j < block.columns; j += kTileColumns) {
    const int64_t columns = std::min<int64_t>(kTileColumns, block.columns - j);
    tile.b = block.b + j / kTileColumns * block.b_panel_stride;
    tile.whole_depth = WholeDepth(block, columns);
    tile.last_lanes = columns % kLanes;
    int64_t row = 0;
    for (int64_t p = 0; p < panels.count; ++p) {
      const int64_t height = panels.HeightOf(p);
      tile.a = block.a + (kRowsAre == RowsAre::kPacked ? p * block.depth * kRowStep
                                                       : row * block.a_row_stride);
      tile.y = block.y + row * block.y_stride + j;
      if (block.added != nullptr) tile.added = block.added + row * block.added_stride + j;
      ChooseTile<kRowsAre>(height, columns)(tile);
      row += height;
    }
  }
}

// ---- Few rows: B is read once, row by row, so that memory is read ahead of the sums.

// Columns whose sums stay in the first-level cache.
constexpr int kFlatColumns = 1024;
constexpr int kFlatRows = 4;

// sums[i, j] += the products of kDepth rows of B in order. Columns are whole vectors.
template <int kRows, int kDepth>
HWY_INLINE void AddRows(const BlockProduct& block, int64_t k, int64_t first, int64_t columns,
                        float (*HWY_RESTRICT sums)[kFlatColumns]) {
  const FloatTag d;
  FloatVector factors[kRows][kDepth];
  const float* rows[kDepth];
#pragma GCC unroll 8
  for (int l = 0; l < kDepth; ++l) {
    rows[l] = block.b + (k + l) * block.b_step + first;
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      factors[i][l] = hn::Set(d, block.a[i * block.a_row_stride + (k + l) * block.a_depth_stride]);
    }
  }
  for (int64_t j = 0; j < columns; j += kLanes) {
    FloatVector totals[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) totals[i] = hn::Load(d, sums[i] + j);
#pragma GCC unroll 8
    for (int l = 0; l < kDepth; ++l) {
      const FloatVector row = hn::LoadU(d, rows[l] + j);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) totals[i] = hn::MulAdd(factors[i][l], row, totals[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) hn::Store(totals[i], d, sums[i] + j);
  }
}

// Columns are whole vectors.
template <int kRows>
void MultiplyFlat(const BlockProduct& block, int64_t columns) {
  constexpr int kDepth = kRows == 1 ? 8 : 4;
  const FloatTag d;
  alignas(64) float sums[kRows][kFlatColumns];
  const FloatVector alpha = hn::Set(d, block.alpha);
  for (int64_t first = 0; first < columns; first += kFlatColumns) {
    const int64_t count = std::min<int64_t>(kFlatColumns, columns - first);
    for (int i = 0; i < kRows; ++i) std::fill_n(sums[i], count, 0.0f);
    int64_t k = 0;
    for (; k + kDepth <= block.depth; k += kDepth) {
      AddRows<kRows, kDepth>(block, k, first, count, sums);
    }
    for (; k < block.depth; ++k) AddRows<kRows, 1>(block, k, first, count, sums);
    for (int i = 0; i < kRows; ++i) {
      float* const y = block.y + i * block.y_stride + first;
      const float* const added =
          block.added == nullptr ? nullptr : block.added + i * block.added_stride + first;
      for (int64_t j = 0; j < count; j += kLanes) {
        const FloatVector sum = hn::Load(d, sums[i] + j);
        hn::StoreU(added == nullptr ? hn::Mul(alpha, sum)
                                    : hn::MulAdd(alpha, sum, hn::LoadU(d, added + j)),
                   d, y + j);
      }
    }
  }
}

void MultiplyFlat(const BlockProduct& block) {
  const int64_t columns = block.columns / kLanes * kLanes;
  if (block.rows == 1) MultiplyFlat<1>(block, columns);
  if (block.rows == 2) MultiplyFlat<2>(block, columns);
  if (block.rows == 3) MultiplyFlat<3>(block, columns);
  if (block.rows == 4) MultiplyFlat<4>(block, columns);
  if (columns == block.columns) return;
  BlockProduct rest = block;
  rest.columns -= columns;
  rest.b += columns;
  rest.y += columns;
  if (rest.added != nullptr) rest.added += columns;
  MultiplyPanels<RowsAre::kStrided>(rest);
}

void Multiply(const BlockProduct& block) {
  if (block.a_is_packed) return MultiplyPanels<RowsAre::kPacked>(block);
  const bool b_is_packed = block.b_panel_stride != kTileColumns;
  if (block.rows <= kFlatRows && block.columns >= 4 * kTileColumns && !b_is_packed) {
    return MultiplyFlat(block);
  }
  MultiplyPanels<RowsAre::kStrided>(block);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(Tile);
HWY_EXPORT(Pack);
HWY_EXPORT(PackAllPanels);
HWY_EXPORT(Multiply);

ProductTile TileOfProduct() { return HWY_DYNAMIC_DISPATCH(Tile)(); }

void PackPanel(const float* from, int64_t line_stride, int64_t depth_stride, int64_t count,
               int64_t depth, float* to, int64_t step) {
  HWY_DYNAMIC_DISPATCH(Pack)(from, line_stride, depth_stride, count, depth, to, step);
}

void PackPanels(const float* from, int64_t column_stride, int64_t depth_stride, int64_t columns,
                int64_t depth, float* to, int64_t panel_stride) {
  HWY_DYNAMIC_DISPATCH(PackAllPanels)
  (from, column_stride, depth_stride, columns, depth, to, panel_stride);
}

void MultiplyBlock(const BlockProduct& block) { HWY_DYNAMIC_DISPATCH(Multiply)(block); }

}  // namespace weft::cpu
#endif  // HWY_ONCE
