// MaxPool without Indices, and AveragePool.
#include "ops/kernels/cpu/pool/pool_tiles_simd.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/kernels/cpu/blocks/simd_targets.h"
#include "ops/kernels/cpu/pool/pool_plan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/pool/pool_tiles_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"
#include "ops/kernels/cpu/pool/pool_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The larger one, and the first of equal ones, as 0 and -0 are. What they give if one is NaN
// follows from the comparison.
struct Larger {
  static constexpr float kPadding = kLowest;
  HWY_INLINE FloatVector operator()(FloatVector best, FloatVector candidate) const {
    return hn::IfThenElse(hn::Gt(candidate, best), candidate, best);
  }
};

// The same, but a NaN wins, and the last one of several.
struct LargerOrNan {
  static constexpr float kPadding = kLowest;
  HWY_INLINE FloatVector operator()(FloatVector best, FloatVector candidate) const {
    const auto replaces = hn::Or(hn::Gt(candidate, best), hn::IsNaN(candidate));
    return hn::IfThenElse(replaces, candidate, best);
  }
};

struct Plus {
  static constexpr float kPadding = 0.0f;
  HWY_INLINE FloatVector operator()(FloatVector sum, FloatVector next) const {
    return hn::Add(sum, next);
  }
};

template <Lie kLie, int kTaps, class Rule>
HWY_INLINE void JoinTaps(const PoolTiles& tiles, const PoolTile& tile, const ReadableRow& row,
                         void* scratch, float* out, Rule rule) {
  const FloatTag d;
  const WindowAxis& width = tiles.plan.axes[2];
  ForEachVectorOfRow(
      tiles, tile, row, scratch,
      [&](int64_t j, const float* base, int64_t column, bool inside) HWY_ATTR {
        FloatVector all = hn::Undefined(d);
        if (inside) {
          ForEachTap<kLie, kTaps>(width, base, [&](int64_t t, FloatVector next) HWY_ATTR {
            all = t == 0 ? next : rule(all, next);
          });
        } else {
          ColumnsOfVector columns(width, column);
          const FloatVector padding = hn::Set(d, Rule::kPadding);
          ForEachTap<kLie, kTaps>(width, base, [&](int64_t t, FloatVector next) HWY_ATTR {
            next = hn::IfThenElse(columns.inside(), next, padding);
            all = t == 0 ? next : rule(all, next);
            columns.Next();
          });
        }
        hn::Store(all, d, out + j);
      });
}

// y[j] = finish(j, start and the rows at the places joined in order).
template <int kRows, class Rule, class Finish>
HWY_INLINE void JoinSomeRows(const float* joined, const int64_t* places, int64_t count, float start,
                             int64_t columns, float* y, Rule rule, Finish finish) {
  const FloatTag d;
  const int64_t rows = kRows > 0 ? kRows : count;
  for (int64_t j = 0; j < columns; j += LanesOf(d)) {
    FloatVector all = hn::Set(d, start);
    for (int64_t r = 0; r < rows; ++r) all = rule(all, hn::Load(d, joined + places[r] + j));
    StoreUpTo(finish(j, all), y + j, columns - j);
  }
}
template <class Rule, class Finish>
HWY_INLINE void JoinRows(const float* joined, const int64_t* places, int64_t count, float start,
                         int64_t columns, float* y, Rule rule, Finish finish) {
  if (count == 3) {
    return JoinSomeRows<3>(joined, places, count, start, columns, y, rule, finish);
  }
  JoinSomeRows<0>(joined, places, count, start, columns, y, rule, finish);
}

// finish_of(row) gives what JoinRows ends with. look(row) is shown each row of the source.
template <class Rule, class Look, class FinishOf>
HWY_INLINE void JoinTile(const PoolTiles& tiles, const PoolTile& tile, const float* x, float* y,
                         void* scratch, Rule rule, Look look, FinishOf finish_of) {
  const PoolPlan& plan = tiles.plan;
  float* const out = y + tile.plane * plan.plane_output() + tile.column;
  float* const joined = Piece<float>(scratch, tiles.joined);
  WithLie(plan.axes[2], [&](auto lie, auto taps) HWY_ATTR {
    ForEachRowOfTile(
        tiles, tile, Piece<uint8_t>(scratch, tiles.done), Piece<int64_t>(scratch, tiles.list),
        [&](int64_t row, int64_t slot) HWY_ATTR {
          const ReadableRow from = RowOfTensor(plan, x, tile.plane, row);
          look(from.elements);
          JoinTaps<lie.value, taps.value>(tiles, tile, from, scratch, joined + slot * tiles.wide,
                                          rule);
        },
        [&](int64_t h, const int64_t* places, int64_t count) HWY_ATTR {
          const int64_t row = tile.depth * plan.axes[1].output + h;
          JoinRows(joined, places, count, Rule::kPadding, tile.columns,
                   out + row * plan.axes[2].output, rule, finish_of(h));
        });
  });
}

// The columns that a tile reads: [first, first + count).
struct ColumnRange {
  int64_t first;
  int64_t count;
};
HWY_INLINE ColumnRange ColumnsRead(const WindowAxis& width, const PoolTile& tile) {
  const int64_t first = width.Start(tile.column);
  const int64_t last =
      width.Start(tile.column + tile.columns - 1) + (width.kernel - 1) * width.dilation + 1;
  const int64_t begin = std::clamp<int64_t>(first, 0, width.input);
  return {begin, std::clamp<int64_t>(last, begin, width.input) - begin};
}

template <class Rule, class Look>
HWY_INLINE void MaxOfTile(const PoolTiles& tiles, const PoolTile& tile, const float* x, float* y,
                          void* scratch, Rule rule, Look look) {
  JoinTile(tiles, tile, x, y, scratch, rule, look,
           [](int64_t) HWY_ATTR { return [](int64_t, FloatVector all) HWY_ATTR { return all; }; });
}

void MaxOfTiles(const PoolTiles& tiles, int64_t begin, int64_t end, const float* x, float* y,
                void* scratch) {
  for (int64_t i = begin; i < end; ++i) {
    const PoolTile tile = tiles.cut.At(i);
    const ColumnRange columns = ColumnsRead(tiles.plan.axes[2], tile);
    NanSearch nan;
    MaxOfTile(tiles, tile, x, y, scratch, Larger(),
              [&](const float* row) HWY_ATTR { nan.Look(row + columns.first, columns.count); });
    if (nan.found()) MaxOfTile(tiles, tile, x, y, scratch, LargerOrNan(), [](const float*) {});
  }
}

void AverageOfTiles(const PoolTiles& tiles, const WindowCounts& counts, int64_t begin, int64_t end,
                    const float* x, float* y, void* scratch) {
  const FloatTag d;
  for (int64_t i = begin; i < end; ++i) {
    const PoolTile tile = tiles.cut.At(i);
    const float* const widths = counts.width.data() + tile.column;
    JoinTile(
        tiles, tile, x, y, scratch, Plus(), [](const float*) {},
        [&](int64_t h) HWY_ATTR {
          const FloatVector rows = hn::Set(d, counts.depth[tile.depth] * counts.height[h]);
          return [=](int64_t j, FloatVector sum) HWY_ATTR {
            const FloatVector count = hn::Mul(rows, hn::LoadU(FloatTag(), widths + j));
            const auto empty = hn::Eq(count, hn::Zero(FloatTag()));
            return hn::IfThenZeroElse(empty, hn::Div(sum, count));
          };
        });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(MaxOfTiles);
HWY_EXPORT(AverageOfTiles);

void MaxOfTiles(const PoolTiles& tiles, int64_t begin, int64_t end, const float* x, float* y,
                void* scratch) {
  HWY_DYNAMIC_DISPATCH(MaxOfTiles)(tiles, begin, end, x, y, scratch);
}

void AverageOfTiles(const PoolTiles& tiles, const WindowCounts& counts, int64_t begin, int64_t end,
                    const float* x, float* y, void* scratch) {
  HWY_DYNAMIC_DISPATCH(AverageOfTiles)(tiles, counts, begin, end, x, y, scratch);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
