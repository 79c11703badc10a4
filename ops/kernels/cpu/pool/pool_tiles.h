// How the vector loops of pools cut planes into tiles, and the scratch memory they need for one.
//
// Windows are separable: each row of the source is joined along the width once, and the rows of a
// window are joined after that.
#ifndef WEFT_OPS_KERNELS_CPU_POOL_POOL_TILES_H_
#define WEFT_OPS_KERNELS_CPU_POOL_POOL_TILES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/kernels/cpu/pool/pool_plan.h"

namespace weft::cpu {

// A rectangle of one slice of one plane.
struct PoolTile {
  int64_t plane = 0;
  int64_t depth = 0;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
};

// Cuts [planes, depth, height, width] into tiles. Depends on the shape of a plane alone, so that
// neither threads nor the number of planes change results.
struct TileCut {
  int64_t depth = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t rows = 1;  // of a tile; the last one may have fewer
  int64_t columns = 1;

  int64_t per_plane() const { return depth * Parts(height, rows) * Parts(width, columns); }
  // Tile `item` in the order of planes, slices, rows, columns.
  PoolTile At(int64_t item) const;

  static int64_t Parts(int64_t size, int64_t part) { return (size + part - 1) / part; }
};

// The outputs along an axis whose windows span an input element in [first, last).
struct WindowRange {
  int64_t first = 0;
  int64_t last = 0;
};
WindowRange WindowsReaching(const WindowAxis& axis, int64_t first, int64_t last);

// Where in a plane the first element of a window lies that equals y, or its last element if none
// does; -1 if all of it lies in the padding. `window` is slice, row and column of the output.
int64_t PositionOf(const PoolPlan& plan, const std::array<int64_t, 3>& window, const float* plane,
                   float y);

// From input to output: y joins the elements of each window. Immutable; any thread may read it.
struct PoolTiles {
  PoolPlan plan;
  TileCut cut;              // of the output
  int64_t wide = 0;         // columns of a tile, rounded up to whole vectors
  int64_t source_rows = 0;  // that a tile reads per slice, at most
  int64_t span = 0;         // elements of a row under one vector of windows, rounded up

  // Pieces of the scratch memory of one thread, in bytes.
  size_t padded = 0;     // float32 [span], what a vector at the border reads
  size_t joined = 0;     // float32 [slices, source_rows, wide], joined along the width
  size_t positions = 0;  // int32 like `joined`: positions in the plane, -1 in the padding
  size_t best = 0;       // int32 of one vector
  size_t list = 0;       // int64 [rows of a window], the rows that it joins
  size_t done = 0;       // bytes [slices * source_rows], which rows are joined
  size_t bytes = 0;      // all of it, a multiple of kAlignment

  // About what one tile takes on one thread.
  double nanoseconds() const;
};

// Nothing when there are no elements, when windows or padding are too large for scratch memory of a
// few megabytes, or when a plane has more than 2^30 elements.
std::optional<PoolTiles> CutPool(const PoolPlan& plan, bool with_positions);

// From output to input: dx of an element joins the windows that it is in.
struct SpreadTiles {
  PoolPlan plan;
  TileCut cut;              // of the input
  int64_t wide = 0;         // elements of a phase in one tile, rounded up to whole vectors
  int64_t length = 0;       // elements of a row of windows that a tile reads
  int64_t reach = 0;        // windows before the first of a phase that reach it
  int64_t source_rows = 0;  // rows of windows that a tile reads per slice, at most
  // Elements stride * j + p of a padded row are phase p. Where the windows of each element t of a
  // phase begin in a row of them, the first window first: [begin_of[p], begin_of[p + 1]) of these.
  std::vector<int64_t> begins;
  std::vector<int64_t> begin_of;

  size_t shares = 0;    // float32 [slices, source_rows, length]
  size_t divisors = 0;  // float32 [length]
  size_t sums = 0;      // float32 [length]
  size_t phase = 0;     // float32 [wide]
  size_t row = 0;       // float32 [stride * wide]
  size_t list = 0;
  size_t done = 0;
  size_t bytes = 0;

  double nanoseconds() const;
};

// Nothing when there are no elements, or when windows or padding are too large.
std::optional<SpreadTiles> CutSpread(const PoolPlan& plan);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_POOL_POOL_TILES_H_
