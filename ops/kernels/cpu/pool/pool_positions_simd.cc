// Largest elements and where they are, for MaxPool with Indices and for the gradient of MaxPool.
#include <algorithm>
#include <limits>

#include "absl/functional/function_ref.h"
#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/pool/pool_plan.h"
#include "ops/kernels/cpu/pool/pool_tiles_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/pool/pool_positions_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"
#include "ops/kernels/cpu/pool/pool_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

constexpr float kBelowAll = -std::numeric_limits<float>::infinity();

// Like LargerOrNan, of elements of which those at -1 are no elements.
struct Best {
  FloatVector value;
  Int32Vector position;

  HWY_INLINE void Take(FloatVector candidate, Int32Vector at) {
    const FloatTag d;
    const Int32Tag integers;
    const auto unset = hn::RebindMask(d, hn::Lt(position, hn::Zero(integers)));
    Replace(hn::Or(hn::Or(hn::Gt(candidate, value), hn::IsNaN(candidate)), unset), candidate, at);
  }
  // REQUIRES: both are elements.
  HWY_INLINE void TakeElement(FloatVector candidate, Int32Vector at) {
    Replace(hn::Or(hn::Gt(candidate, value), hn::IsNaN(candidate)), candidate, at);
  }

 private:
  HWY_INLINE void Replace(hn::Mask<FloatTag> replaces, FloatVector candidate, Int32Vector at) {
    value = hn::IfThenElse(replaces, candidate, value);
    position = hn::IfThenElse(hn::RebindMask(Int32Tag(), replaces), at, position);
  }
};

HWY_INLINE Int32Vector LoadInts(const float* from) {
  return hn::BitCast(Int32Tag(), hn::LoadU(FloatTag(), from));
}
HWY_INLINE void StoreInts(Int32Vector value, float* to) {
  hn::Store(hn::BitCast(FloatTag(), value), FloatTag(), to);
}

// The best of a vector of windows along the width. `places` are those of its first elements in the
// plane; they begin at `column`.
template <Lie kLie, int kTaps>
HWY_INLINE Best FindInRow(const WindowAxis& width, const float* base, Int32Vector places,
                          int64_t column, bool inside) {
  const Int32Tag integers;
  const Int32Vector step = hn::Set(integers, static_cast<int32_t>(width.dilation));
  Best best{hn::Zero(FloatTag()), hn::Zero(integers)};
  if (inside) {
    ForEachTap<kLie, kTaps>(width, base, [&](int64_t t, FloatVector next) HWY_ATTR {
      if (t == 0) {
        best = Best{next, places};
      } else {
        best.TakeElement(next, places);
      }
      places = hn::Add(places, step);
    });
    return best;
  }
  const FloatTag d;
  ColumnsOfVector columns(width, column);
  const Int32Vector none = hn::Set(integers, -1);
  const FloatVector padding = hn::Set(d, kBelowAll);
  ForEachTap<kLie, kTaps>(width, base, [&](int64_t t, FloatVector next) HWY_ATTR {
    const auto is_element = columns.inside();
    next = hn::IfThenElse(is_element, next, padding);
    const Int32Vector at = hn::IfThenElse(hn::RebindMask(integers, is_element), places, none);
    if (t == 0) {
      best = Best{next, at};
    } else {
      best.Take(next, at);
    }
    places = hn::Add(places, step);
    columns.Next();
  });
  return best;
}

template <Lie kLie, int kTaps>
HWY_INLINE void FindAlongWidth(const PoolTiles& tiles, const PoolTile& tile, const ReadableRow& row,
                               int64_t first, void* scratch, int64_t slot) {
  const FloatTag d;
  const Int32Tag integers;
  const WindowAxis& width = tiles.plan.axes[2];
  float* const joined = Piece<float>(scratch, tiles.joined) + slot * tiles.wide;
  float* const positions = Piece<float>(scratch, tiles.positions) + slot * tiles.wide;
  const Int32Vector strides =
      hn::Mul(hn::Iota(integers, 0), hn::Set(integers, static_cast<int32_t>(width.stride)));
  ForEachVectorOfRow(tiles, tile, row, scratch,
                     [&](int64_t j, const float* base, int64_t column, bool inside) HWY_ATTR {
                       const Int32Vector places = hn::Add(
                           strides, hn::Set(integers, static_cast<int32_t>(first + column)));
                       const Best best =
                           FindInRow<kLie, kTaps>(width, base, places, column, inside);
                       hn::Store(best.value, d, joined + j);
                       StoreInts(best.position, positions + j);
                     });
}

// Calls found(row of windows, first column of a vector, best of its windows).
template <class Found>
HWY_INLINE void FindInTile(const PoolTiles& tiles, const PoolTile& tile, const float* x,
                           void* scratch, Found found) {
  const FloatTag d;
  const float* const joined = Piece<float>(scratch, tiles.joined);
  const float* const positions = Piece<float>(scratch, tiles.positions);
  const auto join = [&](int64_t h, const int64_t* places, int64_t count) HWY_ATTR {
    for (int64_t j = 0; j < tile.columns; j += LanesOf(d)) {
      Best best{hn::Set(d, kBelowAll), hn::Set(Int32Tag(), -1)};
      for (int64_t r = 0; r < count; ++r) {
        best.Take(hn::Load(d, joined + places[r] + j), LoadInts(positions + places[r] + j));
      }
      found(h, j, best);
    }
  };
  WithLie(tiles.plan.axes[2], [&](auto lie, auto taps) HWY_ATTR {
    ForEachRowOfTile(
        tiles, tile, Piece<uint8_t>(scratch, tiles.done), Piece<int64_t>(scratch, tiles.list),
        [&](int64_t row, int64_t slot) HWY_ATTR {
          const int64_t first = row * tiles.plan.axes[2].input;
          FindAlongWidth<lie.value, taps.value>(
              tiles, tile, RowOfTensor(tiles.plan, x, tile.plane, row), first, scratch, slot);
        },
        join);
  });
}

// to[k] = base + position, or -1. `spare` has room for a vector.
HWY_INLINE void StorePositions(Int32Vector positions, int64_t base, int64_t count, float* spare,
                               int64_t* to) {
  const hn::ScalableTag<int64_t> wide;
  const hn::Rebind<int32_t, decltype(wide)> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  StoreInts(positions, spare);
  const int32_t* const from = reinterpret_cast<const int32_t*>(spare);
  count = std::min(count, LanesOf(FloatTag()));
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    const auto position = hn::PromoteTo(wide, hn::LoadU(narrow, from + k));
    const auto unset = hn::Lt(position, hn::Zero(wide));
    const auto moved = hn::Add(position, hn::Set(wide, base));
    hn::StoreU(hn::IfThenElse(unset, position, moved), wide, to + k);
  }
  for (; k < count; ++k) to[k] = from[k] < 0 ? -1 : base + from[k];
}

void MaxWithPositionsOfTiles(const PoolTiles& tiles, int64_t begin, int64_t end, const float* x,
                             float* y, int64_t* positions,
                             absl::FunctionRef<int64_t(int64_t)> base_of, void* scratch) {
  const PoolPlan& plan = tiles.plan;
  float* const spare = Piece<float>(scratch, tiles.best);
  for (int64_t i = begin; i < end; ++i) {
    const PoolTile tile = tiles.cut.At(i);
    const int64_t base = base_of(tile.plane);
    const int64_t out = tile.plane * plan.plane_output() + tile.column;
    FindInTile(tiles, tile, x, scratch, [&](int64_t h, int64_t j, const Best& best) HWY_ATTR {
      const int64_t row = tile.depth * plan.axes[1].output + h;
      const int64_t at = out + row * plan.axes[2].output + j;
      StoreUpTo(best.value, y + at, tile.columns - j);
      StorePositions(best.position, base, tile.columns - j, spare, positions + at);
    });
  }
}

// ---- The gradient of the largest.

// Of one plane.
struct MaxGradientOperands {
  const float* x;
  const float* y;
  const float* dy;
  float* dx;
  int64_t first;  // the elements of dx that get something: [first, last)
  int64_t last;
};

constexpr int32_t kOtherPosition = -2;

HWY_INLINE void AddGradients(const PoolTiles& tiles, const PoolTile& tile, const float* x,
                             const MaxGradientOperands& operands, void* scratch) {
  const FloatTag d;
  const Int32Tag integers;
  const PoolPlan& plan = tiles.plan;
  float* const best_positions = Piece<float>(scratch, tiles.best);
  FindInTile(tiles, tile, x, scratch, [&](int64_t h, int64_t j, const Best& best) HWY_ATTR {
    const int64_t row = tile.depth * plan.axes[1].output + h;
    const int64_t out = row * plan.axes[2].output + tile.column + j;
    const int64_t count = std::min(LanesOf(d), tile.columns - j);
    const FloatVector y = LoadUpTo(operands.y + out, count);
    const auto known = hn::Or(hn::RebindMask(integers, hn::Eq(best.value, y)),
                              hn::Lt(best.position, hn::Zero(integers)));
    StoreInts(hn::IfThenElse(known, best.position, hn::Set(integers, kOtherPosition)),
              best_positions);
    const int32_t* const positions = reinterpret_cast<const int32_t*>(best_positions);
    for (int64_t k = 0; k < count; ++k) {
      int64_t position = positions[k];
      if (position == kOtherPosition) {
        const int64_t column = tile.column + j + k;
        position = PositionOf(plan, {tile.depth, h, column}, operands.x, operands.y[out + k]);
      }
      if (position < operands.first || position >= operands.last) continue;
      operands.dx[position] += operands.dy[out + k];
    }
  });
}

void MaxGradientOfRows(const PoolTiles& tiles, int64_t plane, int64_t first_row, int64_t last_row,
                       const float* x, const float* y, const float* dy, float* dx, void* scratch) {
  const int64_t input = plane * tiles.plan.plane_input();
  const int64_t output = plane * tiles.plan.plane_output();
  const WindowAxis& height = tiles.plan.axes[1];
  const int64_t columns = tiles.plan.axes[2].input;
  const MaxGradientOperands operands{x + input,  y + output,          dy + output,
                                     dx + input, first_row * columns, last_row * columns};
  FillRow(0.0f, operands.last - operands.first, operands.dx + operands.first);
  int64_t first = 0;
  int64_t last = height.output;
  if (tiles.plan.axes[0].input == 1) {
    const WindowRange range = WindowsReaching(height, first_row, last_row);
    first = range.first;
    last = range.last;
  }
  PoolTile tile;
  tile.plane = plane;
  for (tile.depth = 0; tile.depth < tiles.cut.depth; ++tile.depth) {
    for (tile.row = first; tile.row < last; tile.row += tiles.cut.rows) {
      tile.rows = std::min(tiles.cut.rows, last - tile.row);
      for (tile.column = 0; tile.column < tiles.cut.width; tile.column += tiles.cut.columns) {
        tile.columns = std::min(tiles.cut.columns, tiles.cut.width - tile.column);
        AddGradients(tiles, tile, x, operands, scratch);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MaxWithPositionsOfTiles);
HWY_EXPORT(MaxGradientOfRows);

void MaxWithPositionsOfTiles(const PoolTiles& tiles, int64_t begin, int64_t end, const float* x,
                             float* y, int64_t* positions,
                             absl::FunctionRef<int64_t(int64_t)> base_of, void* scratch) {
  HWY_DYNAMIC_DISPATCH(MaxWithPositionsOfTiles)
  (tiles, begin, end, x, y, positions, base_of, scratch);
}

void MaxGradientOfRows(const PoolTiles& tiles, int64_t plane, int64_t first_row, int64_t last_row,
                       const float* x, const float* y, const float* dy, float* dx, void* scratch) {
  HWY_DYNAMIC_DISPATCH(MaxGradientOfRows)(tiles, plane, first_row, last_row, x, y, dy, dx, scratch);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
