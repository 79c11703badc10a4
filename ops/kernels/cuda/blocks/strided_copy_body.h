// Bodies that move elements from one set of strides to another.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_STRIDED_COPY_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_STRIDED_COPY_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/broadcast.h"
#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

// Packet i of `count`, in the order of the map, from `from` (operand 0, in packets) to `to`
// (operand 1, in packets). With kRepeats the source is counted in elements, and a packet is one of
// them, kWidth times.
template <typename T, int kWidth, bool kRepeats, typename Index>
struct StridedCopyBody {
  static constexpr int kAtOnce = 4;

  const T* from;
  T* to;
  Index count;
  BroadcastMap<2, Index> map;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto source = gpu.Global(from);
    const auto target = gpu.Global(to);
    const Index threads = static_cast<Index>(gpu.threads());
    const Index step = static_cast<Index>(gpu.blocks()) * threads * kAtOnce;
    Index first = static_cast<Index>(gpu.block()) * threads * kAtOnce + gpu.thread();
    for (; first < count; first += step) {
      Packet<T, kWidth> packets[kAtOnce] = {};
      Index places[kAtOnce] = {};
      WEFT_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const Index i = first + j * threads;
        if (i >= count) continue;
        const auto offsets = map.At(i);
        places[j] = offsets.of[1];
        if constexpr (kRepeats) {
          const T value = source[offsets.of[0]];
          WEFT_UNROLL
          for (int k = 0; k < kWidth; ++k) packets[j].values[k] = value;
        } else {
          packets[j] = gpu.template Load<kWidth>(source, int64_t{offsets.of[0]} * kWidth);
        }
      }
      WEFT_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        if (first + j * threads >= count) continue;
        gpu.template Store<kWidth>(target, int64_t{places[j]} * kWidth, packets[j]);
      }
    }
  }
};

inline constexpr int kTileThreads = 256;

// Matrices that are transposed: in `from` rows are neighbours, in `to` columns. Through tiles in
// shared memory, so that both are read and written by whole lines. A line of a tile has kPack
// elements for each lane of a warp; with kPack > 1 rows, columns and all strides are multiples of
// it. The lines of a tile are one element longer: its columns lie in different banks.
template <typename T, int kPack, typename Index>
struct TransposeBody {
  static constexpr int kTile = kWarp * kPack;
  static constexpr int kPitch = kTile + 1;
  static constexpr int kLines = kTile / (kTileThreads / kWarp);  // of a warp
  // Of single bytes a thread has a square of 16 in registers, which needs more than a quarter.
  static constexpr int kMinBlocks = sizeof(Index) == 4 && kPack < 4 ? 4 : 1;

  const T* from;
  T* to;
  int64_t tiles;
  FastDivisor<Index> row_tiles;
  FastDivisor<Index> column_tiles;
  Index rows;
  Index columns;
  Index from_stride;             // from a column to the next
  Index to_stride;               // from a row to the next
  BroadcastMap<2, Index> batch;  // the matrices

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto tile = gpu.template Shared<0, T, kTile * kPitch>();
    const int x = gpu.lane() * kPack;
    for (int64_t t = gpu.block(); t < tiles; t += gpu.blocks()) {
      const Division<Index> by_column = column_tiles.Divide(static_cast<Index>(t));
      const Division<Index> by_row = row_tiles.Divide(by_column.quotient);
      const auto matrix = batch.At(by_row.quotient);
      const Index row = by_row.rest * kTile;
      const Index column = by_column.rest * kTile;
      const auto source = gpu.Global(from) + matrix.of[0];
      const auto target = gpu.Global(to) + matrix.of[1];
      Packet<T, kPack> packets[kLines] = {};
      WEFT_UNROLL
      for (int j = 0; j < kLines; ++j) {
        const Index c = column + j * gpu.warps() + gpu.warp();
        if (row + x >= rows || c >= columns) continue;
        packets[j] = gpu.template Load<kPack>(source, int64_t{c} * from_stride + row + x);
      }
      WEFT_UNROLL
      for (int j = 0; j < kLines; ++j) {
        const int line = j * gpu.warps() + gpu.warp();
        WEFT_UNROLL
        for (int k = 0; k < kPack; ++k) tile[line * kPitch + x + k] = packets[j].values[k];
      }
      gpu.Barrier();
      WEFT_UNROLL
      for (int j = 0; j < kLines; ++j) {
        const int line = j * gpu.warps() + gpu.warp();
        const Index r = row + line;
        if (r >= rows || column + x >= columns) continue;
        Packet<T, kPack> packet;
        WEFT_UNROLL
        for (int k = 0; k < kPack; ++k) packet.values[k] = tile[(x + k) * kPitch + line];
        gpu.template Store<kPack>(target, int64_t{r} * to_stride + column + x, packet);
      }
      gpu.Barrier();
    }
  }
};

// The same for matrices that fill tiles of 16 x 16 squares of kPack x kPack elements, where rows,
// columns and all strides are multiples of kPack: a thread turns a square in its registers, and
// each access, of shared memory, too, is a packet. Packet p of a tile's line lies at p ^ (line /
// kPack): threads side by side use different banks both when they write a column of packets and
// when they read a line of them.
//
// Tiles are taken in bands of kBand tiles of rows, down and then across: what is on its way at a
// time is about as wide at one end as at the other, so that both ends touch whole pages of memory.
inline constexpr int kSquaresOfTile = 16;
inline constexpr int kTransposeBand = 16;

template <typename T, int kPack, typename Index>
struct SquareTransposeBody {
  static_assert(kTileThreads == kSquaresOfTile * kSquaresOfTile);
  static constexpr int kMinBlocks = sizeof(Index) == 4 ? 4 : 2;
  static constexpr int kTile = kSquaresOfTile * kPack;

  const T* from;
  T* to;
  int64_t tiles;
  FastDivisor<Index> matrix_tiles;
  FastDivisor<Index> band_tiles;  // kTransposeBand times column_tiles
  Index row_tiles;
  Index rows;
  Index columns;
  Index from_stride;             // from a column to the next
  Index to_stride;               // from a row to the next
  BroadcastMap<2, Index> batch;  // the matrices

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto tile = gpu.template Shared<0, Packet<T, kPack>, kTile * kSquaresOfTile>();
    const int across = gpu.thread() % kSquaresOfTile;  // side by side in memory at both ends
    const int along = gpu.thread() / kSquaresOfTile;
    for (int64_t t = gpu.block(); t < tiles; t += gpu.blocks()) {
      const Division<Index> by_matrix = matrix_tiles.Divide(static_cast<Index>(t));
      const Division<Index> by_band = band_tiles.Divide(by_matrix.rest);
      const Index above = by_band.quotient * kTransposeBand;
      const Index left = row_tiles - above;
      const Index height = left < kTransposeBand ? left : kTransposeBand;
      const Index row = (above + by_band.rest % height) * kTile;
      const Index column = by_band.rest / height * kTile;
      const auto matrix = batch.At(by_matrix.quotient);
      const auto source = gpu.Global(from) + matrix.of[0];
      const auto target = gpu.Global(to) + matrix.of[1];
      Packet<T, kPack> square[kPack] = {};
      WEFT_UNROLL
      for (int k = 0; k < kPack; ++k) {
        const Index r = row + across * kPack;
        const Index c = column + along * kPack + k;
        if (r >= rows || c >= columns) continue;
        square[k] = gpu.template Load<kPack>(source, int64_t{c} * from_stride + r);
      }
      WEFT_UNROLL
      for (int v = 0; v < kPack; ++v) {
        Packet<T, kPack> turned;
        WEFT_UNROLL
        for (int k = 0; k < kPack; ++k) turned.values[k] = square[k].values[v];
        tile[(across * kPack + v) * kSquaresOfTile + (along ^ across)] = turned;
      }
      gpu.Barrier();
      WEFT_UNROLL
      for (int v = 0; v < kPack; ++v) {
        const int line = v * kSquaresOfTile + along;
        const Index r = row + line;
        const Index c = column + across * kPack;
        if (r >= rows || c >= columns) continue;
        const Packet<T, kPack> packet = tile[line * kSquaresOfTile + (across ^ (line / kPack))];
        gpu.template Store<kPack>(target, int64_t{r} * to_stride + c, packet);
      }
      gpu.Barrier();
    }
  }
};

// Bytes of a pattern of 16 that is repeated. Packets of 16 bytes first; a thread writes one byte of
// the rest.
struct FillBody {
  uint32_t* to;
  int64_t packets;
  int64_t bytes;
  uint32_t pattern[4];

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto target = gpu.Global(to);
    for (int64_t i = gpu.index(); i < packets; i += gpu.stride()) {
      gpu.template Store<4>(target, i * 4,
                            Packet<uint32_t, 4>{{pattern[0], pattern[1], pattern[2], pattern[3]}});
    }
    const auto single = gpu.Global(reinterpret_cast<uint8_t*>(to));
    for (int64_t i = packets * 16 + gpu.index(); i < bytes; i += gpu.stride()) {
      const int place = static_cast<int>(i % 16);
      single[i] = static_cast<uint8_t>(pattern[place / 4] >> (place % 4 * 8));
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_STRIDED_COPY_BODY_H_
