// The inner part of transposing: matrices of elements of 1, 2, 4, 8 or 16 bytes.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_TRANSPOSE_TILE_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_TRANSPOSE_TILE_H_

#include <cstdint>

namespace weft::cpu {

// Elements of `width` bytes along one side of a tile: one cache line.
constexpr int64_t TileEdge(int width) { return 64 / width; }

// to[i][j] = from[j][i] for i < rows, j < columns, where `from_stride` and `to_stride` are the
// bytes from one row to the next. Rows of both are contiguous; they need no alignment. Works
// through tiles of whole cache lines by way of a buffer of its own, so that strides of large powers
// of two do not evict each other from the cache.
void TransposeMatrix(const char* from, int64_t from_stride, char* to, int64_t to_stride,
                     int64_t rows, int64_t columns, int width);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_TRANSPOSE_TILE_H_
