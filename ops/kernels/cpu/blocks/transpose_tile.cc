#include "ops/kernels/cpu/blocks/transpose_tile.h"

#include <algorithm>
#include <array>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/blocks/transpose_tile.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Any part of a tile: rows of `from` are read in order into the columns of a buffer.
template <int kWidth>
void TransposePart(const char* HWY_RESTRICT from, int64_t from_stride, char* HWY_RESTRICT to,
                   int64_t to_stride, int64_t rows, int64_t columns) {
  constexpr int64_t kEdge = 64 / kWidth;
  alignas(64) char buffer[kEdge * 64];
  for (int64_t j = 0; j < columns; ++j) {
    const char* row = from + j * from_stride;
    char* column = buffer + j * kWidth;
    for (int64_t i = 0; i < rows; ++i) std::memcpy(column + i * 64, row + i * kWidth, kWidth);
  }
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(to + i * to_stride, buffer + i * 64, static_cast<size_t>(columns) * kWidth);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four rows of four 32-bit elements become four columns, 64 bytes apart.
HWY_INLINE void TransposeFour(const char* HWY_RESTRICT from, int64_t from_stride,
                              char* HWY_RESTRICT to) {
  const hn::Full128<uint32_t> d32;
  const hn::Full128<uint64_t> d64;
  const auto row = [&](int j) HWY_ATTR {
    return hn::LoadU(d32, reinterpret_cast<const uint32_t*>(from + j * from_stride));
  };
  const auto r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d32, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d32, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d32, r0, r1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d32, r2, r3));
  const auto store = [&](int i, auto column) HWY_ATTR {
    hn::Store(column, d64, reinterpret_cast<uint64_t*>(to + i * 64));
  };
  store(0, hn::InterleaveLower(d64, low01, low23));
  store(1, hn::InterleaveUpper(d64, low01, low23));
  store(2, hn::InterleaveLower(d64, high01, high23));
  store(3, hn::InterleaveUpper(d64, high01, high23));
}

// A whole tile of 16 by 16 elements of 32 bits.
void TransposeWholeTile(const char* HWY_RESTRICT from, int64_t from_stride, char* HWY_RESTRICT to,
                        int64_t to_stride) {
  alignas(64) char buffer[16 * 64];
  for (int j = 0; j < 16; j += 4) {
    for (int i = 0; i < 16; i += 4) {
      TransposeFour(from + j * from_stride + i * 4, from_stride, buffer + i * 64 + j * 4);
    }
  }
  for (int i = 0; i < 16; ++i) std::memcpy(to + i * to_stride, buffer + i * 64, 64);
}
#endif

template <int kWidth>
void TransposeBlock(const char* HWY_RESTRICT from, int64_t from_stride, char* HWY_RESTRICT to,
                    int64_t to_stride, int64_t rows, int64_t columns) {
  constexpr int64_t kEdge = 64 / kWidth;
  for (int64_t i = 0; i < rows; i += kEdge) {
    const int64_t tile_rows = std::min(kEdge, rows - i);
    for (int64_t j = 0; j < columns; j += kEdge) {
      const int64_t tile_columns = std::min(kEdge, columns - j);
      const char* tile_from = from + j * from_stride + i * kWidth;
      char* tile_to = to + i * to_stride + j * kWidth;
#if HWY_TARGET != HWY_SCALAR
      if (kWidth == 4 && tile_rows == kEdge && tile_columns == kEdge) {
        TransposeWholeTile(tile_from, from_stride, tile_to, to_stride);
        continue;
      }
#endif
      TransposePart<kWidth>(tile_from, from_stride, tile_to, to_stride, tile_rows, tile_columns);
    }
  }
}

// A few columns, such as colours: without tiles, since they are less than a cache line.
template <int kWidth>
void TransposeNarrow(const char* HWY_RESTRICT from, int64_t from_stride, char* HWY_RESTRICT to,
                     int64_t to_stride, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      std::memcpy(to + i * to_stride + j * kWidth, from + j * from_stride + i * kWidth, kWidth);
    }
  }
}

// Blocks of 16 by 16 tiles touch few enough pages for the address translation to stay cached.
template <int kWidth>
void TransposeTyped(const char* HWY_RESTRICT from, int64_t from_stride, char* HWY_RESTRICT to,
                    int64_t to_stride, int64_t rows, int64_t columns) {
  constexpr int64_t kEdge = 64 / kWidth;
  constexpr int64_t kBlock = 16 * kEdge;
  if (columns <= kEdge / 4) {
    return TransposeNarrow<kWidth>(from, from_stride, to, to_stride, rows, columns);
  }
  for (int64_t i = 0; i < rows; i += kBlock) {
    for (int64_t j = 0; j < columns; j += kBlock) {
      TransposeBlock<kWidth>(from + j * from_stride + i * kWidth, from_stride,
                             to + i * to_stride + j * kWidth, to_stride, std::min(kBlock, rows - i),
                             std::min(kBlock, columns - j));
    }
  }
}

void Transpose(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t rows,
               int64_t columns, int width) {
  switch (width) {
    case 1:
      return TransposeTyped<1>(from, from_stride, to, to_stride, rows, columns);
    case 2:
      return TransposeTyped<2>(from, from_stride, to, to_stride, rows, columns);
    case 4:
      return TransposeTyped<4>(from, from_stride, to, to_stride, rows, columns);
    case 8:
      return TransposeTyped<8>(from, from_stride, to, to_stride, rows, columns);
    default:
      return TransposeTyped<16>(from, from_stride, to, to_stride, rows, columns);
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(Transpose);

void TransposeMatrix(const char* from, int64_t from_stride, char* to, int64_t to_stride,
                     int64_t rows, int64_t columns, int width) {
  HWY_DYNAMIC_DISPATCH(Transpose)(from, from_stride, to, to_stride, rows, columns, width);
}

}  // namespace weft::cpu
#endif
