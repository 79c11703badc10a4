// The gradient of AveragePool: sums over the windows that an element is in.
#include <algorithm>

#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/pool/pool_plan.h"
#include "ops/kernels/cpu/pool/pool_tiles_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/pool/pool_spread_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"
#include "ops/kernels/cpu/pool/pool_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// Row `h` of the shares dy / count of a slice, with zeros around it, as the tile's windows reach
// it.
HWY_INLINE void PrepareShares(const SpreadTiles& tiles, const float* dy, int64_t first, float count,
                              const float* divisors, float* shares) {
  const FloatTag d;
  PadRow(dy, tiles.plan.axes[2].output, first, 0.0f, tiles.length, shares);
  const FloatVector rows = hn::Set(d, count);
  for (int64_t j = 0; j < tiles.length; j += LanesOf(d)) {
    const FloatVector divisor = hn::Mul(rows, hn::Load(d, divisors + j));
    const FloatVector share = hn::Div(hn::Load(d, shares + j), divisor);
    hn::Store(hn::IfThenZeroElse(hn::Eq(divisor, hn::Zero(d)), share), d, shares + j);
  }
}

// Phase `p` of a row of dx: the sum over the windows along the width that reach its elements.
HWY_INLINE FloatVector PhaseOf(const SpreadTiles& tiles, int64_t p, const float* sums) {
  const FloatTag d;
  FloatVector sum = hn::Zero(d);
  for (int64_t i = tiles.begin_of[p]; i < tiles.begin_of[p + 1]; ++i) {
    sum = hn::Add(sum, hn::LoadU(d, sums + tiles.begins[i]));
  }
  return sum;
}

// dx[c] for the columns of a tile. `first` is the first element of the phases.
HWY_INLINE void SpreadAlongWidth(const SpreadTiles& tiles, const PoolTile& tile, int64_t first,
                                 const float* sums, void* scratch, float* dx) {
  const FloatTag d;
  const WindowAxis& width = tiles.plan.axes[2];
  const int64_t stride = width.stride;
  if (stride == 1) {
    for (int64_t j = 0; j < tile.columns; j += LanesOf(d)) {
      StoreUpTo(PhaseOf(tiles, 0, sums + j), dx + j, tile.columns - j);
    }
    return;
  }
  float* const row = Piece<float>(scratch, tiles.row);
  float* const phase = Piece<float>(scratch, tiles.phase);
  for (int64_t j = 0; stride == 2 && j < tiles.wide; j += LanesOf(d)) {
    hn::StoreInterleaved2(PhaseOf(tiles, 0, sums + j), PhaseOf(tiles, 1, sums + j), d, row + 2 * j);
  }
  for (int64_t p = 0; stride > 2 && p < stride; ++p) {
    for (int64_t j = 0; j < tiles.wide; j += LanesOf(d)) {
      hn::Store(PhaseOf(tiles, p, sums + j), d, phase + j);
    }
    for (int64_t j = 0; j < tiles.wide; ++j) row[stride * j + p] = phase[j];
  }
  CopyRow(row + tile.column + width.pad_begin - stride * first, tile.columns, dx);
}

void SpreadTile(const SpreadTiles& tiles, const WindowCounts& counts, const PoolTile& tile,
                const float* dy, float* dx, void* scratch) {
  const FloatTag d;
  const PoolPlan& plan = tiles.plan;
  const WindowAxis& width = plan.axes[2];
  const int64_t first_phase = (tile.column + width.pad_begin) / width.stride;
  const int64_t first = first_phase - tiles.reach;
  float* const shares = Piece<float>(scratch, tiles.shares);
  float* const divisors = Piece<float>(scratch, tiles.divisors);
  float* const sums = Piece<float>(scratch, tiles.sums);
  PadRow(counts.width.data(), width.output, first, 1.0f, tiles.length, divisors);
  ForEachRowOfSpread(
      tiles, tile, Piece<uint8_t>(scratch, tiles.done), Piece<int64_t>(scratch, tiles.list),
      [&](int64_t slice, int64_t h, int64_t slot) HWY_ATTR {
        const int64_t row = slice * plan.axes[1].output + h;
        PrepareShares(tiles, dy + row * width.output, first, counts.depth[slice] * counts.height[h],
                      divisors, shares + slot * tiles.length);
      },
      [&](int64_t h, const int64_t* slots, int64_t count) HWY_ATTR {
        for (int64_t j = 0; j < tiles.length; j += LanesOf(d)) {
          FloatVector sum = hn::Zero(d);
          for (int64_t r = 0; r < count; ++r) {
            sum = hn::Add(sum, hn::Load(d, shares + slots[r] * tiles.length + j));
          }
          hn::Store(sum, d, sums + j);
        }
        const int64_t row = tile.depth * plan.axes[1].input + h;
        SpreadAlongWidth(tiles, tile, first_phase, sums, scratch,
                         dx + row * width.input + tile.column);
      });
}

void AverageGradientOfTiles(const SpreadTiles& tiles, const WindowCounts& counts, int64_t begin,
                            int64_t end, const float* dy, float* dx, void* scratch) {
  for (int64_t i = begin; i < end; ++i) {
    const PoolTile tile = tiles.cut.At(i);
    SpreadTile(tiles, counts, tile, dy + tile.plane * tiles.plan.plane_output(),
               dx + tile.plane * tiles.plan.plane_input(), scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(AverageGradientOfTiles);

void AverageGradientOfTiles(const SpreadTiles& tiles, const WindowCounts& counts, int64_t begin,
                            int64_t end, const float* dy, float* dx, void* scratch) {
  HWY_DYNAMIC_DISPATCH(AverageGradientOfTiles)(tiles, counts, begin, end, dy, dx, scratch);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
