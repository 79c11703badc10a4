// Rows of pools as vectors, for files that Highway compiles once per instruction set: padding and
// copying them, and the walk over the rows that a tile reads.

// Included once per target: see foreach_target.h.
#if defined(WEFT_OPS_KERNELS_CPU_POOL_POOL_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_KERNELS_CPU_POOL_POOL_ROWS_INL_H_
#undef WEFT_OPS_KERNELS_CPU_POOL_POOL_ROWS_INL_H_
#else
#define WEFT_OPS_KERNELS_CPU_POOL_POOL_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "ops/kernels/cpu/blocks/simd_math-inl.h"
#include "ops/kernels/cpu/pool/pool_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

using Int32Tag = hn::RebindToSigned<FloatTag>;
using Int32Vector = hn::Vec<Int32Tag>;

HWY_INLINE int64_t LanesOf(FloatTag d) { return static_cast<int64_t>(hn::Lanes(d)); }

template <typename T>
HWY_INLINE T* Piece(void* scratch, size_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(scratch) + offset);
}

// The first `count` lanes, or all.
HWY_INLINE void StoreUpTo(FloatVector value, float* to, int64_t count) {
  const FloatTag d;
  if (count >= LanesOf(d)) return hn::StoreU(value, d, to);
  StorePart(d, value, to, static_cast<size_t>(count));
}
HWY_INLINE FloatVector LoadUpTo(const float* from, int64_t count) {
  const FloatTag d;
  if (count >= LanesOf(d)) return hn::LoadU(d, from);
  return LoadPart(d, from, static_cast<size_t>(count));
}

HWY_INLINE void FillRow(float value, int64_t count, float* to) {
  const FloatTag d;
  const FloatVector fill = hn::Set(d, value);
  for (int64_t i = 0; i < count; i += LanesOf(d)) StoreUpTo(fill, to + i, count - i);
}

HWY_INLINE void CopyRow(const float* from, int64_t count, float* to) {
  const FloatTag d;
  const int64_t lanes = LanesOf(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  if (i == count) return;
  if (count < lanes) {
    return StorePart(d, LoadPart(d, from, static_cast<size_t>(count)), to,
                     static_cast<size_t>(count));
  }
  hn::StoreU(hn::LoadU(d, from + count - lanes), d, to + count - lanes);
}

// to[i] = row[first + i] inside [0, size), `padding` elsewhere. REQUIRES: `length` is a multiple of
// 16, `to` aligned.
HWY_INLINE void PadRow(const float* row, int64_t size, int64_t first, float padding, int64_t length,
                       float* to) {
  const FloatTag d;
  const int64_t lanes = LanesOf(d);
  const int64_t begin = std::clamp<int64_t>(-first, 0, length);
  const int64_t end = std::clamp<int64_t>(size - first, begin, length);
  const FloatVector fill = hn::Set(d, padding);
  for (int64_t i = 0; i < begin; i += lanes) hn::Store(fill, d, to + i);
  for (int64_t i = end / lanes * lanes; i < length; i += lanes) hn::Store(fill, d, to + i);
  if (begin < end) CopyRow(row + first + begin, end - begin, to + begin);
}

// Looks for NaN: the bits of one without the sign are more than those of infinity.
class NanSearch {
 public:
  HWY_INLINE NanSearch() : highest_(hn::Zero(Int32Tag())) {}

  HWY_INLINE void Look(const float* row, int64_t count) {
    const FloatTag d;
    int64_t i = 0;
    for (; i + LanesOf(d) <= count; i += LanesOf(d)) Look(hn::LoadU(d, row + i));
    if (i < count) Look(LoadUpTo(row + i, count - i));
  }
  HWY_INLINE bool found() const {
    const Int32Tag integers;
    return !hn::AllFalse(integers, hn::Gt(highest_, hn::Set(integers, 0x7f800000)));
  }

 private:
  HWY_INLINE void Look(FloatVector values) {
    const Int32Tag integers;
    const Int32Vector magnitude = hn::Set(integers, 0x7fffffff);
    highest_ = hn::Max(highest_, hn::And(hn::BitCast(integers, values), magnitude));
  }

  Int32Vector highest_;
};

// How the windows of a vector lie in a row.
enum class Lie : uint8_t { kDense, kInPairs, kApart };

// One element of each window of a vector, for t = 0, 1, ... in order: take(t, elements). `base` is
// element 0 of the first window.
template <Lie kLie, int kTaps, class Take>
HWY_INLINE void ForEachTap(const WindowAxis& width, const float* base, Take take) {
  const FloatTag d;
  const int64_t taps = kTaps > 0 ? kTaps : width.kernel;
  if constexpr (kLie == Lie::kDense) {  // stride 1
    for (int64_t t = 0; t < taps; ++t) take(t, hn::LoadU(d, base + t * width.dilation));
  } else if constexpr (kLie == Lie::kInPairs) {  // stride 2, dilation 1
    for (int64_t t = 0; t < taps; t += 2) {
      FloatVector even, odd;
      hn::LoadInterleaved2(d, base + t, even, odd);
      take(t, even);
      if (t + 1 < taps) take(t + 1, odd);
    }
  } else {
    const Int32Tag integers;
    const Int32Vector places =
        hn::Mul(hn::Iota(integers, 0), hn::Set(integers, static_cast<int32_t>(width.stride)));
    for (int64_t t = 0; t < taps; ++t) {
      take(t, hn::GatherIndex(d, base + t * width.dilation, places));
    }
  }
}

// The columns of a vector's elements t = 0, 1, ..., to tell which lie in a row.
class ColumnsOfVector {
 public:
  HWY_INLINE ColumnsOfVector(const WindowAxis& width, int64_t column)
      : step_(hn::Set(Int32Tag(), static_cast<int32_t>(width.dilation))) {
    const Int32Tag integers;
    const Int32Vector stride = hn::Set(integers, static_cast<int32_t>(width.stride));
    // Moved by the lowest number, so that one comparison does.
    const Int32Vector first = hn::Set(integers, static_cast<int32_t>(column));
    const Int32Vector lowest = hn::Set(integers, std::numeric_limits<int32_t>::min());
    moved_ = hn::Add(hn::Add(hn::Mul(hn::Iota(integers, 0), stride), first), lowest);
    end_ = hn::Add(hn::Set(integers, static_cast<int32_t>(width.input)), lowest);
  }

  HWY_INLINE hn::Mask<FloatTag> inside() const {
    return hn::RebindMask(FloatTag(), hn::Lt(moved_, end_));
  }
  HWY_INLINE void Next() { moved_ = hn::Add(moved_, step_); }

 private:
  Int32Vector step_;
  Int32Vector moved_;
  Int32Vector end_;
};

// A row of the source with what lies around it: elements [-before, size + behind) may be read.
struct ReadableRow {
  const float* elements;
  int64_t before;
  int64_t behind;
};

// Row `row` of the slices of a plane, in a tensor of all planes.
HWY_INLINE ReadableRow RowOfTensor(const PoolPlan& plan, const float* x, int64_t plane,
                                   int64_t row) {
  const int64_t begin = plane * plan.plane_input() + row * plan.axes[2].input;
  const int64_t behind = plan.planes * plan.plane_input() - begin - plan.axes[2].input;
  return {x + begin, begin, behind};
}

// Calls vector(j, base, column, inside) for each vector of windows of a tile: `base` is the element
// of the row at `column`, which may lie before it. `inside`: the windows of the tile lie in the
// row. Elsewhere what is read around the row may be anything. Windows that are not in the tile
// read anything, too.
template <class Vector>
HWY_INLINE void ForEachVectorOfRow(const PoolTiles& tiles, const PoolTile& tile,
                                   const ReadableRow& row, void* scratch, Vector vector) {
  const WindowAxis& width = tiles.plan.axes[2];
  const int64_t lanes = LanesOf(FloatTag());
  const int64_t taps_reach = (width.kernel - 1) * width.dilation;
  const int64_t reach = lanes * width.stride + taps_reach;
  float* const padded = Piece<float>(scratch, tiles.padded);
  for (int64_t j = 0; j < tile.columns; j += lanes) {
    const int64_t column = width.Start(tile.column + j);
    const int64_t windows = std::min(lanes, tile.columns - j);
    const int64_t end = column + (windows - 1) * width.stride + taps_reach + 1;
    const bool inside = column >= 0 && end <= width.input;
    if (column >= -row.before && column + reach <= width.input + row.behind) {
      vector(j, row.elements + column, column, inside);
    } else {
      PadRow(row.elements, width.input, column, 0.0f, tiles.span, padded);
      vector(j, static_cast<const float*>(padded), column, inside);
    }
  }
}

// Calls fn with the constants of the windows along the width.
template <class Fn>
HWY_INLINE void WithLie(const WindowAxis& width, Fn fn) {
  using DenseLie = std::integral_constant<Lie, Lie::kDense>;
  using PairedLie = std::integral_constant<Lie, Lie::kInPairs>;
  using ApartLie = std::integral_constant<Lie, Lie::kApart>;
  using AnyTaps = std::integral_constant<int, 0>;
  using ThreeTaps = std::integral_constant<int, 3>;
  if (width.stride == 1) {
    if (width.kernel == 3) return fn(DenseLie(), ThreeTaps());
    return fn(DenseLie(), AnyTaps());
  }
  if (width.stride == 2 && width.dilation == 1) {
    if (width.kernel == 3) return fn(PairedLie(), ThreeTaps());
    return fn(PairedLie(), AnyTaps());
  }
  fn(ApartLie(), AnyTaps());
}

// For each row of windows of a tile, in order: calls prepare(row of the plane, slot) for those
// that it joins and no row before did, then join(row of windows, places, count). `done` has a byte
// per slot; slot s is at place s * tiles.wide of tiles.joined.
template <class Prepare, class Join>
HWY_INLINE void ForEachRowOfTile(const PoolTiles& tiles, const PoolTile& tile, uint8_t* done,
                                 int64_t* list, Prepare prepare, Join join) {
  const WindowAxis& depth = tiles.plan.axes[0];
  const WindowAxis& height = tiles.plan.axes[1];
  const int64_t slice = depth.Start(tile.depth);
  const int64_t first_slice = depth.FirstInside(slice);
  const int64_t last_slice = depth.LastInside(slice);
  const int64_t first_row = std::max<int64_t>(height.Start(tile.row), 0);
  if (last_slice > first_slice) {
    std::memset(done, 0, static_cast<size_t>((last_slice - first_slice) * tiles.source_rows));
  }
  const int64_t reach = (height.kernel - 1) * height.dilation;
  for (int64_t h = tile.row; h < tile.row + tile.rows; ++h) {
    const int64_t start = height.Start(h);
    const int64_t first = height.FirstInside(start);
    const int64_t last = start + reach < height.input ? height.kernel : height.LastInside(start);
    int64_t count = 0;
    for (int64_t i = first_slice; i < last_slice; ++i) {
      for (int64_t j = first; j < last; ++j) {
        const int64_t row = start + j * height.dilation;
        const int64_t slot = (i - first_slice) * tiles.source_rows + row - first_row;
        if (!done[slot]) {
          done[slot] = 1;
          prepare((slice + i * depth.dilation) * height.input + row, slot);
        }
        list[count++] = slot * tiles.wide;
      }
    }
    join(h, list, count);
  }
}

// For each row of the input of a tile, in order: calls prepare(slice and row of windows, slot) for
// the windows that reach it and no row before, then join(row, slots, count).
template <class Prepare, class Join>
HWY_INLINE void ForEachRowOfSpread(const SpreadTiles& tiles, const PoolTile& tile, uint8_t* done,
                                   int64_t* list, Prepare prepare, Join join) {
  const WindowAxis& depth = tiles.plan.axes[0];
  const WindowAxis& height = tiles.plan.axes[1];
  const int64_t slots = std::min(depth.kernel, depth.output) * tiles.source_rows;
  std::memset(done, 0, static_cast<size_t>(slots));
  const int64_t first_row = WindowsReaching(height, tile.row, tile.row + tile.rows).first;
  // The window of which `position` is element t, or -1.
  const auto window_of = [](const WindowAxis& axis, int64_t position, int64_t t) {
    const int64_t start = position + axis.pad_begin - t * axis.dilation;
    if (start < 0 || start % axis.stride != 0) return int64_t{-1};
    const int64_t window = start / axis.stride;
    return window < axis.output ? window : int64_t{-1};
  };
  for (int64_t r = tile.row; r < tile.row + tile.rows; ++r) {
    int64_t count = 0;
    int64_t first_slot = 0;
    for (int64_t i = depth.kernel - 1; i >= 0; --i) {
      const int64_t slice = window_of(depth, tile.depth, i);
      if (slice < 0) continue;
      for (int64_t j = height.kernel - 1; j >= 0; --j) {
        const int64_t h = window_of(height, r, j);
        if (h < 0) continue;
        const int64_t slot = first_slot + h - first_row;
        if (!done[slot]) {
          done[slot] = 1;
          prepare(slice, h, slot);
        }
        list[count++] = slot;
      }
      first_slot += tiles.source_rows;
    }
    join(r, list, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
