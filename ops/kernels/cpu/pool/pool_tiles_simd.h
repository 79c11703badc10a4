// Vector loops of float32 pools over tiles (pool_tiles.h). All allocate nothing; `scratch` is one
// thread's, 64-byte aligned, with the `bytes` of the tiles. x, y, dy and dx are whole tensors.
#ifndef WEFT_OPS_KERNELS_CPU_POOL_POOL_TILES_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_POOL_POOL_TILES_SIMD_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "ops/kernels/cpu/pool/pool_tiles.h"

namespace weft::cpu {

// y = the first of the largest elements of each window, the last NaN if there is one, -infinity
// where all of a window lies in the padding; for tiles [begin, end) of tiles.cut.
void MaxOfTiles(const PoolTiles& tiles, int64_t begin, int64_t end, const float* x, float* y,
                void* scratch);

// Also positions[o] = base_of(plane) + where y[o] lies in its plane, or -1 where all of a window
// lies in the padding. REQUIRES: cut with positions.
void MaxWithPositionsOfTiles(const PoolTiles& tiles, int64_t begin, int64_t end, const float* x,
                             float* y, int64_t* positions,
                             absl::FunctionRef<int64_t(int64_t plane)> base_of, void* scratch);

// The rows [first_row, last_row) of one plane of dx get dy at the first element of each window
// that equals y, or at the last element of a window where none does. They are zeroed first.
// Windows are added in one order, whatever the rows. `first_row` and `last_row` count the rows of
// all slices. REQUIRES: cut with positions; all rows, or one slice.
void MaxGradientOfRows(const PoolTiles& tiles, int64_t plane, int64_t first_row, int64_t last_row,
                       const float* x, const float* y, const float* dy, float* dx, void* scratch);

// How many elements an average divides by: the product of one number per axis. `width` has 16
// elements more, of 1.
struct WindowCounts {
  std::vector<float> depth;
  std::vector<float> height;
  std::vector<float> width;
};

// y = sum / count, 0 where the count is 0; for tiles [begin, end) of tiles.cut.
void AverageOfTiles(const PoolTiles& tiles, const WindowCounts& counts, int64_t begin, int64_t end,
                    const float* x, float* y, void* scratch);

// dx = the sum over the windows that an element is in of dy / count; for tiles of tiles.cut.
void AverageGradientOfTiles(const SpreadTiles& tiles, const WindowCounts& counts, int64_t begin,
                            int64_t end, const float* dy, float* dx, void* scratch);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_POOL_POOL_TILES_SIMD_H_
