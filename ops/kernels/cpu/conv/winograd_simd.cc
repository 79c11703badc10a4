#include "ops/kernels/cpu/conv/winograd_simd.h"

#include <algorithm>
#include <cstring>

#include "ops/kernels/cpu/blocks/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/conv/winograd_simd.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/conv/winograd_transforms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

using Vectors = hn::ScalableTag<float>;
using Vector = hn::Vec<Vectors>;

// AVX-512 has 32 registers: 8 x 3 sums, 3 vectors of tiles, and filters from memory. AVX2 has 16:
// 4 x 3 sums, 3 vectors of tiles, a filter.
constexpr int64_t kRows = HWY_TARGET <= HWY_AVX3 ? 8 : HWY_TARGET <= HWY_AVX2 ? 4 : 2;
constexpr int64_t kPanel = 3;
using RowTag = hn::CappedTag<float, kRows>;

WinogradVectors DescribeVectors() {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Vectors()));
  return {HWY_TARGET <= HWY_AVX2 ? lanes : 0, kRows, kPanel};
}

// ---- Filters.

template <int kTile>
void FiltersOf(const WinogradFilters& filters, const float* w, int64_t begin, int64_t end,
               float* u) {
  constexpr int kSize = kTile + 2;
  const RowTag d;
  const hn::Rebind<double, RowTag> wide;
  const hn::RebindToSigned<RowTag> whole;
  const int64_t blocks = (filters.output_channels + kRows - 1) / kRows;
  const int64_t point_step = blocks * filters.input_channels * kRows;
  for (int64_t block = begin; block < end; ++block) {
    HWY_ALIGN int32_t places[kRows];
    for (int64_t r = 0; r < kRows; ++r) {
      const int64_t row = std::min(block * kRows + r, filters.output_channels - 1) - block * kRows;
      places[r] = static_cast<int32_t>(row * filters.output_step);
    }
    const auto rows = hn::Load(whole, places);
    const float* from = w + block * kRows * filters.output_step;
    float* to = u + block * filters.input_channels * kRows;
    for (int64_t c = 0; c < filters.input_channels; ++c) {
      hn::Vec<decltype(wide)> g[9];
      hn::Vec<decltype(wide)> columns[kSize * 3];
      for (int i = 0; i < 9; ++i) {
        const float* const element = from + (filters.reversed ? 8 - i : i);
        g[i] = hn::PromoteTo(wide, hn::GatherIndex(d, element, rows));
      }
      for (int s = 0; s < 3; ++s) {
        Filter<kTile>::Line(wide, g[s], g[3 + s], g[6 + s],
                            [&](int p, auto value) HWY_ATTR { columns[p * 3 + s] = value; });
      }
      for (int p = 0; p < kSize; ++p) {
        Filter<kTile>::Line(wide, columns[p * 3], columns[p * 3 + 1], columns[p * 3 + 2],
                            [&](int q, auto value) HWY_ATTR {
                              hn::StoreU(hn::DemoteTo(d, value), d,
                                         to + (p * kSize + q) * point_step);
                            });
      }
      from += filters.input_step;
      to += kRows;
    }
  }
}

// ---- Inputs.

// Where the pieces of the scratch memory are: transformed columns of a row of tiles, and their
// elements apart, [kSize, kSize, tiles].
struct InputScratch {
  InputScratch(const WinogradTiles& tiles, int64_t padded, float* scratch)
      : line_step(RoundUp(tiles.m * (tiles.columns() + 17))),
        element_step(padded + 16),
        zeros(scratch),
        lines(zeros + RoundUp(tiles.input_width)),
        elements(lines + line_step * (tiles.m + 2)) {}

  static int64_t RoundUp(int64_t n) { return (n + 15) / 16 * 16; }
  int64_t TotalOf(const WinogradTiles& tiles) const {
    return (elements - zeros) + tiles.points() * element_step;
  }

  int64_t line_step;
  int64_t element_step;
  float* zeros;
  float* lines;
  float* elements;
};

// Transforms columns [0, n) of kSize rows, those of one vector length together. The last vector
// overlaps the one before it.
template <int kTile, class D>
HWY_INLINE void ColumnsWith(D d, const float* const* rows, int64_t n, float* out, int64_t step) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t at = std::min(i, n - lanes);
    InputTransform<kTile>::Line(
        d, [&](int r) HWY_ATTR { return hn::LoadU(d, rows[r] + at); },
        [&](int p, auto value) HWY_ATTR { hn::StoreU(value, d, out + p * step + at); });
  }
}

template <int kTile>
void Columns(const float* const* rows, int64_t n, float* out, int64_t step) {
  const Vectors d;
  if (n >= static_cast<int64_t>(hn::Lanes(d))) return ColumnsWith<kTile>(d, rows, n, out, step);
  if (n >= 8) return ColumnsWith<kTile>(hn::CappedTag<float, 8>(), rows, n, out, step);
  if (n >= 4) return ColumnsWith<kTile>(hn::CappedTag<float, 4>(), rows, n, out, step);
  ColumnsWith<kTile>(hn::CappedTag<float, 1>(), rows, n, out, step);
}

// Puts element s of `count` tiles that lie kTile apart in each line at elements[line][s]. Writes
// whole vectors: what is past `count` is written again by the next tiles, or never read.
template <int kTile, class D>
HWY_INLINE void SeparateWith(D d, const float* lines, int64_t line_step, int64_t count,
                             float* elements, int64_t step) {
  constexpr int kSize = kTile + 2;
  for (int p = 0; p < kSize; ++p) {
    for (int64_t t = 0; t < count; t += static_cast<int64_t>(hn::Lanes(d))) {
      const float* const line = lines + p * line_step + t * kTile;
      float* const to = elements + p * kSize * step + t;
      hn::Vec<D> e0, e1, e2, e3, e4, e5;
      if constexpr (kTile == 4) {
        hn::LoadInterleaved4(d, line, e0, e1, e2, e3);
        hn::StoreU(e0, d, to);
        hn::StoreU(e1, d, to + step);
        hn::StoreU(e2, d, to + 2 * step);
        hn::StoreU(e3, d, to + 3 * step);
        hn::LoadInterleaved4(d, line + 4, e4, e5, e2, e3);
        hn::StoreU(e4, d, to + 4 * step);
        hn::StoreU(e5, d, to + 5 * step);
      } else {
        hn::LoadInterleaved2(d, line, e0, e1);
        hn::LoadInterleaved2(d, line + 2, e2, e3);
        hn::StoreU(e0, d, to);
        hn::StoreU(e1, d, to + step);
        hn::StoreU(e2, d, to + 2 * step);
        hn::StoreU(e3, d, to + 3 * step);
      }
    }
  }
}

// Tiles of the block that lie in one row of tiles of one image.
struct Segment {
  int64_t image;
  int64_t row;
  int64_t column;
  int64_t count;
  int64_t place;  // of the first, in the block
};

template <typename Visit>
HWY_INLINE void ForEachSegment(const WinogradTiles& tiles, const WinogradBlock& block,
                               Visit visit) {
  const int64_t columns = tiles.columns();
  int64_t tile = block.first;
  const int64_t end = block.first + block.count;
  while (tile < end) {
    const int64_t in_image = tile % tiles.per_image();
    Segment segment{tile / tiles.per_image(), in_image / columns, in_image % columns, 0,
                    tile - block.first};
    segment.count = std::min(columns - segment.column, end - tile);
    visit(segment);
    tile += segment.count;
  }
}

// The elements of a channel's tiles of one segment, with their columns transformed.
template <int kTile>
void LoadSegment(const WinogradTiles& tiles, const Segment& segment, const float* plane,
                 const InputScratch& scratch) {
  constexpr int kSize = kTile + 2;
  const float* rows[kSize];
  const int64_t left = segment.column * kTile - tiles.pad_left;
  const int64_t width = segment.count * kTile + 2;
  const int64_t begin = std::clamp<int64_t>(left, 0, tiles.input_width);
  const int64_t end = std::clamp<int64_t>(left + width, begin, tiles.input_width);
  for (int r = 0; r < kSize; ++r) {
    const int64_t y = segment.row * kTile - tiles.pad_top + r;
    rows[r] =
        y < 0 || y >= tiles.input_height ? scratch.zeros : plane + y * tiles.input_width + begin;
  }
  // Where all of it is padding, `begin` may lie outside.
  const int64_t before = std::min(begin - left, width);
  const int64_t inside = std::min(end - begin, width - before);
  for (int p = 0; p < kSize; ++p) {
    float* const line = scratch.lines + p * scratch.line_step;
    std::fill_n(line, before, 0.0f);
    std::fill_n(line + before + inside, width - before - inside, 0.0f);
  }
  Columns<kTile>(rows, inside, scratch.lines + before, scratch.line_step);
  float* const elements = scratch.elements + segment.place;
  if (segment.count <= 4) {
    SeparateWith<kTile>(hn::CappedTag<float, 4>(), scratch.lines, scratch.line_step, segment.count,
                        elements, scratch.element_step);
  } else if (segment.count <= 8) {
    SeparateWith<kTile>(hn::CappedTag<float, 8>(), scratch.lines, scratch.line_step, segment.count,
                        elements, scratch.element_step);
  } else {
    SeparateWith<kTile>(Vectors(), scratch.lines, scratch.line_step, segment.count, elements,
                        scratch.element_step);
  }
}

template <int kTile>
void InputOf(const WinogradTiles& tiles, const WinogradBlock& block, const float* x, int64_t begin,
             int64_t end, float* memory, float* v) {
  constexpr int kSize = kTile + 2;
  const Vectors d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const InputScratch scratch(tiles, block.padded, memory);
  // Lanes past the last tile have numbers, though never used ones.
  std::fill_n(memory, scratch.TotalOf(tiles), 0.0f);
  const int64_t plane = tiles.input_height * tiles.input_width;
  const int64_t vectors = block.padded / lanes;
  const int64_t step = block.input_step();
  for (int64_t c = begin; c < end; ++c) {
    ForEachSegment(tiles, block, [&](const Segment& segment) HWY_ATTR {
      const float* const image = x + (segment.image * tiles.input_channels + c) * plane;
      LoadSegment<kTile>(tiles, segment, image, scratch);
    });
    for (int64_t i = 0; i < vectors; ++i) {
      const int64_t panel = i / kPanel * kPanel;
      const int64_t width = std::min(kPanel, vectors - panel) * lanes;
      float* const to = v + panel * lanes * tiles.input_channels + c * width + (i - panel) * lanes;
      const float* const from = scratch.elements + i * lanes;
      for (int p = 0; p < kSize; ++p) {
        InputTransform<kTile>::Line(
            d,
            [&](int s)
                HWY_ATTR { return hn::LoadU(d, from + (p * kSize + s) * scratch.element_step); },
            [&](int q, Vector value)
                HWY_ATTR { hn::StoreU(value, d, to + (p * kSize + q) * step); });
      }
    }
  }
}

// ---- Products.

// kCount vectors of tiles, in registers.
template <int kCount>
struct Tiles {
  Tiles<kCount - 1> others;
  Vector last;

  HWY_INLINE void SetZero() {
    others.SetZero();
    last = hn::Zero(Vectors());
  }
  HWY_INLINE void Load(const float* from) {
    others.Load(from);
    last = hn::LoadU(Vectors(), from + (kCount - 1) * static_cast<int64_t>(hn::Lanes(Vectors())));
  }
  HWY_INLINE void Store(float* to) const {
    others.Store(to);
    hn::StoreU(last, Vectors(), to + (kCount - 1) * static_cast<int64_t>(hn::Lanes(Vectors())));
  }
  HWY_INLINE void Add(const Tiles& v, Vector filter) {
    others.Add(v.others, filter);
    last = hn::MulAdd(v.last, filter, last);
  }
};
template <>
struct Tiles<0> {
  HWY_INLINE void SetZero() {}
  HWY_INLINE void Load(const float*) {}
  HWY_INLINE void Store(float*) const {}
  HWY_INLINE void Add(const Tiles&, Vector) {}
};

// The sums of kCount output channels.
template <int kCount, int kVectors>
struct Sums {
  Sums<kCount - 1, kVectors> others;
  Tiles<kVectors> last;

  HWY_INLINE void SetZero() {
    others.SetZero();
    last.SetZero();
  }
  HWY_INLINE void Store(float* to, int64_t step) const {
    others.Store(to, step);
    last.Store(to + (kCount - 1) * step);
  }
  HWY_INLINE void Add(const Tiles<kVectors>& v, const float* filters) {
    others.Add(v, filters);
    last.Add(v, hn::Set(Vectors(), filters[kCount - 1]));
  }
};
template <int kVectors>
struct Sums<0, kVectors> {
  HWY_INLINE void SetZero() {}
  HWY_INLINE void Store(float*, int64_t) const {}
  HWY_INLINE void Add(const Tiles<kVectors>&, const float*) {}
};

// Fetches `next` and what follows it in steps of `next_step` floats: filters of the next row block,
// which come from memory where there are many.
template <int kVectors>
HWY_NOINLINE void MultiplyPanel(const float* u, const float* v, int64_t channels, const float* next,
                                int64_t next_step, float* products, int64_t step) {
  constexpr int64_t kRowCount = kRows;
  Sums<kRowCount, kVectors> sums;
  sums.SetZero();
  const int64_t width = kVectors * static_cast<int64_t>(hn::Lanes(Vectors()));
  for (int64_t c = 0; c < channels; ++c) {
    Tiles<kVectors> tiles;
    tiles.Load(v);
    hwy::Prefetch(next);
    sums.Add(tiles, u);
    u += kRowCount;
    v += width;
    next += next_step;
  }
  sums.Store(products, step);
}

void Multiply(const WinogradTiles& tiles, const WinogradBlock& block, const float* u,
              const float* v, int64_t begin, int64_t end, float* products) {
  const int64_t panel = kPanel * static_cast<int64_t>(hn::Lanes(Vectors()));
  const int64_t channels = tiles.input_channels;
  const int64_t blocks = (tiles.output_channels + kRows - 1) / kRows;
  const int64_t panels = (block.padded + panel - 1) / panel;
  // Each panel fetches its part of the next filters.
  const int64_t next_step = (kRows + panels - 1) / panels;
  const auto filters_of = [&](int64_t point, int64_t row) {
    return u + (point * blocks + row) * channels * kRows;
  };
  for (int64_t point = 0; point < tiles.points(); ++point) {
    const float* const inputs = v + point * block.input_step();
    for (int64_t row = begin; row < end; ++row) {
      const float* const filters = filters_of(point, row);
      const float* next = row + 1 < end                ? filters_of(point, row + 1)
                          : point + 1 < tiles.points() ? filters_of(point + 1, begin)
                                                       : filters;
      float* to = products + point * block.product_step + (row - begin) * kRows * block.padded;
      for (int64_t t = 0; t < block.padded; t += panel) {
        const float* const tile = inputs + t * channels;
        const int64_t width = std::min(panel, block.padded - t);
        if (width == panel) {
          MultiplyPanel<3>(filters, tile, channels, next, next_step, to, block.padded);
        } else if (3 * width == 2 * panel) {
          MultiplyPanel<2>(filters, tile, channels, next, next_step, to, block.padded);
        } else {
          MultiplyPanel<1>(filters, tile, channels, next, next_step, to, block.padded);
        }
        next += next_step * channels;
        to += panel;
      }
    }
  }
}

// ---- Outputs.

// Line r of the tiles' outputs lies at out + r * padded * kTile.
template <int kTile>
HWY_INLINE void OutputsOfVector(const float* products, int64_t step, Vector bias, float* out,
                                int64_t line_step) {
  constexpr int kSize = kTile + 2;
  const Vectors d;
  Vector lines[kTile * kSize];
  for (int q = 0; q < kSize; ++q) {
    OutputTransform<kTile>::Line(
        d, [&](int p) HWY_ATTR { return hn::LoadU(d, products + (p * kSize + q) * step); },
        [&](int r, Vector value) HWY_ATTR { lines[r * kSize + q] = value; });
  }
  for (int r = 0; r < kTile; ++r) {
    Vector y[kTile];
    OutputTransform<kTile>::Line(
        d, [&](int q) HWY_ATTR { return lines[r * kSize + q]; },
        [&](int s, Vector value) HWY_ATTR { y[s] = hn::Add(value, bias); });
    if constexpr (kTile == 4) {
      hn::StoreInterleaved4(y[0], y[1], y[2], y[3], d, out + r * line_step);
    } else {
      hn::StoreInterleaved2(y[0], y[1], d, out + r * line_step);
    }
  }
}

template <int kTile>
void OutputOf(const WinogradTiles& tiles, const WinogradBlock& block, const float* products,
              const float* bias, int64_t begin, int64_t end, float* scratch, float* y) {
  const Vectors d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t line_step = block.padded * kTile;
  for (int64_t k = begin; k < end; ++k) {
    const Vector add = hn::Set(d, bias == nullptr ? 0.0f : bias[k]);
    const float* const from = products + (k - begin) * block.padded;
    for (int64_t t = 0; t < block.padded; t += lanes) {
      OutputsOfVector<kTile>(from + t, block.product_step, add, scratch + t * kTile, line_step);
    }
    ForEachSegment(tiles, block, [&](const Segment& segment) HWY_ATTR {
      const int64_t column = segment.column * kTile;
      const int64_t top = segment.row * kTile;
      const int64_t width = std::min(segment.count * kTile, tiles.output_width - column);
      const int64_t height = std::min<int64_t>(kTile, tiles.output_height - top);
      const int64_t image = segment.image * tiles.output_channels + k;
      float* to = y + (image * tiles.output_height + top) * tiles.output_width + column;
      for (int64_t r = 0; r < height; ++r) {
        const float* const line = scratch + r * line_step + segment.place * kTile;
        std::copy_n(line, width, to);
        to += tiles.output_width;
      }
    });
  }
}

// ---- For both sizes of tiles.

void FiltersOfTiles(int64_t m, const WinogradFilters& filters, const float* w, int64_t begin,
                    int64_t end, float* u) {
  m == 4 ? FiltersOf<4>(filters, w, begin, end, u) : FiltersOf<2>(filters, w, begin, end, u);
}

void InputOfTiles(const WinogradTiles& tiles, const WinogradBlock& block, const float* x,
                  int64_t begin, int64_t end, float* scratch, float* v) {
  tiles.m == 4 ? InputOf<4>(tiles, block, x, begin, end, scratch, v)
               : InputOf<2>(tiles, block, x, begin, end, scratch, v);
}

void OutputOfTiles(const WinogradTiles& tiles, const WinogradBlock& block, const float* products,
                   const float* bias, int64_t begin, int64_t end, float* scratch, float* y) {
  tiles.m == 4 ? OutputOf<4>(tiles, block, products, bias, begin, end, scratch, y)
               : OutputOf<2>(tiles, block, products, bias, begin, end, scratch, y);
}

int64_t ScratchElements(const WinogradTiles& tiles, int64_t padded) {
  const int64_t input = InputScratch(tiles, padded, nullptr).TotalOf(tiles);
  return std::max(input, padded * tiles.m * tiles.m);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(DescribeVectors);
HWY_EXPORT(FiltersOfTiles);
HWY_EXPORT(InputOfTiles);
HWY_EXPORT(Multiply);
HWY_EXPORT(OutputOfTiles);
HWY_EXPORT(ScratchElements);

WinogradVectors WinogradVectorsHere() { return HWY_DYNAMIC_DISPATCH(DescribeVectors)(); }

int64_t WinogradFilterElements(int64_t points, const WinogradFilters& filters) {
  const int64_t rows = WinogradVectorsHere().rows;
  const int64_t blocks = (filters.output_channels + rows - 1) / rows;
  return points * blocks * rows * filters.input_channels;
}

void TransformWinogradFilters(int64_t m, const WinogradFilters& filters, const float* w,
                              int64_t begin, int64_t end, float* u) {
  HWY_DYNAMIC_DISPATCH(FiltersOfTiles)(m, filters, w, begin, end, u);
}

int64_t WinogradScratchElements(const WinogradTiles& tiles, int64_t padded) {
  return HWY_DYNAMIC_DISPATCH(ScratchElements)(tiles, padded);
}

void TransformWinogradInput(const WinogradTiles& tiles, const WinogradBlock& block, const float* x,
                            int64_t begin, int64_t end, float* scratch, float* v) {
  HWY_DYNAMIC_DISPATCH(InputOfTiles)(tiles, block, x, begin, end, scratch, v);
}

void MultiplyWinograd(const WinogradTiles& tiles, const WinogradBlock& block, const float* u,
                      const float* v, int64_t begin, int64_t end, float* products) {
  HWY_DYNAMIC_DISPATCH(Multiply)(tiles, block, u, v, begin, end, products);
}

void TransformWinogradOutput(const WinogradTiles& tiles, const WinogradBlock& block,
                             const float* products, const float* bias, int64_t begin, int64_t end,
                             float* scratch, float* y) {
  HWY_DYNAMIC_DISPATCH(OutputOfTiles)(tiles, block, products, bias, begin, end, scratch, y);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
