#include "ops/kernels/cpu/pool/pool_tiles.h"

#include <algorithm>
#include <limits>

#include "ops/kernels/cpu/blocks/workspace.h"

namespace weft::cpu {
namespace {

// Joined rows of a tile should stay in the nearest cache.
constexpr int64_t kJoinedElements = 8 << 10;
// A row of a tile, split or not.
constexpr int64_t kRowElements = 2 << 10;
// Beyond this the plain loops are taken.
constexpr int64_t kMaxRowElements = 64 << 10;
constexpr int64_t kMaxJoinedElements = 1 << 20;
constexpr int64_t kMaxTaps = 4096;

// To whole vectors of any instruction set.
int64_t RoundUp(int64_t count) { return (count + 15) / 16 * 16; }

int64_t Reach(const WindowAxis& axis) { return (axis.kernel - 1) * axis.dilation; }

bool SuitsPlainLoops(const PoolPlan& plan) {
  if (plan.plane_input() == 0 || plan.plane_output() == 0) return true;
  for (const WindowAxis& axis : plan.axes) {
    if (axis.kernel > kMaxTaps || Reach(axis) > kMaxJoinedElements) return true;
    if (axis.stride > kMaxRowElements) return true;
  }
  return plan.axes[0].kernel * plan.axes[1].kernel > kMaxTaps;
}

// Columns of a tile when each takes `stride` elements of a padded row.
int64_t Columns(int64_t stride, int64_t width) {
  return std::min(std::max<int64_t>(RoundUp(kRowElements / stride), 16), width);
}

// Rows of a tile, so that few rows are joined in two tiles and most stay near. A tile of n rows
// reads n / spread + reach rows of its source in each of `slices`.
int64_t Rows(double spread, int64_t reach, int64_t slices, int64_t row_elements, int64_t height) {
  const double near = static_cast<double>(kJoinedElements) /
                      static_cast<double>(std::max<int64_t>(row_elements * slices, 1));
  const double source = std::max(near, 4.0 * static_cast<double>(reach + 1));
  const double rows = (source - static_cast<double>(reach)) * spread;
  return std::clamp<int64_t>(static_cast<int64_t>(rows), 1, std::max<int64_t>(height, 1));
}

size_t Floats(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

}  // namespace

PoolTile TileCut::At(int64_t item) const {
  const int64_t column_parts = Parts(width, columns);
  const int64_t row_parts = Parts(height, rows);
  PoolTile tile;
  tile.column = item % column_parts * columns;
  item /= column_parts;
  tile.row = item % row_parts * rows;
  item /= row_parts;
  tile.depth = item % depth;
  tile.plane = item / depth;
  tile.rows = std::min(rows, height - tile.row);
  tile.columns = std::min(columns, width - tile.column);
  return tile;
}

WindowRange WindowsReaching(const WindowAxis& axis, int64_t first, int64_t last) {
  const int64_t before = first + axis.pad_begin - Reach(axis);
  const int64_t begin = before <= 0 ? 0 : (before + axis.stride - 1) / axis.stride;
  const int64_t end = (last - 1 + axis.pad_begin) / axis.stride + 1;
  return {begin, std::min(end, axis.output)};
}

int64_t PositionOf(const PoolPlan& plan, const std::array<int64_t, 3>& window, const float* plane,
                   float y) {
  int64_t where = -1;
  ForEachInside(plan, PoolWindow(plan, window[0], window[1], window[2]), [&](int64_t position) {
    where = position;
    return !(plane[position] == y);
  });
  return where;
}

std::optional<PoolTiles> CutPool(const PoolPlan& plan, bool with_positions) {
  if (SuitsPlainLoops(plan)) return std::nullopt;
  if (plan.plane_input() > std::numeric_limits<int32_t>::max() / 2) return std::nullopt;
  const WindowAxis& height = plan.axes[1];
  const WindowAxis& width = plan.axes[2];
  PoolTiles tiles;
  tiles.plan = plan;
  tiles.cut = {plan.axes[0].output, height.output, width.output};
  tiles.cut.columns = Columns(width.stride, width.output);
  tiles.wide = RoundUp(tiles.cut.columns);
  tiles.span = RoundUp(16 * width.stride + Reach(width));
  if (tiles.span > kMaxRowElements) return std::nullopt;
  const int64_t slices = std::min(plan.axes[0].kernel, plan.axes[0].input);
  tiles.cut.rows = Rows(1.0 / static_cast<double>(height.stride), Reach(height), slices, tiles.wide,
                        height.output);
  tiles.source_rows =
      std::min((tiles.cut.rows - 1) * height.stride + Reach(height) + 1, height.input);
  const int64_t joined = slices * tiles.source_rows;
  if (joined * tiles.wide > kMaxJoinedElements) return std::nullopt;

  WorkspaceLayout layout;
  tiles.padded = layout.Add(Floats(tiles.span));
  tiles.joined = layout.Add(Floats(joined * tiles.wide));
  if (with_positions) {
    tiles.positions = layout.Add(Floats(joined * tiles.wide));
    tiles.best = layout.Add(Floats(16));
  }
  tiles.list = layout.Add(static_cast<size_t>(plan.axes[0].kernel * height.kernel) * 8);
  tiles.done = layout.Add(static_cast<size_t>(joined));
  tiles.bytes = layout.total();
  return tiles;
}

double PoolTiles::nanoseconds() const {
  const double wide_rows = static_cast<double>(source_rows * wide * plan.axes[0].kernel);
  const double joins = static_cast<double>(cut.rows * wide) *
                       static_cast<double>(plan.axes[0].kernel * plan.axes[1].kernel);
  const double width_joins = wide_rows * static_cast<double>(plan.axes[2].kernel);
  const double copies = wide_rows * static_cast<double>(plan.axes[2].stride);
  return 40 + 0.06 * (joins + width_joins + copies);
}

std::optional<SpreadTiles> CutSpread(const PoolPlan& plan) {
  if (SuitsPlainLoops(plan)) return std::nullopt;
  const WindowAxis& height = plan.axes[1];
  const WindowAxis& width = plan.axes[2];
  SpreadTiles tiles;
  tiles.plan = plan;
  tiles.cut = {plan.axes[0].input, height.input, width.input};
  tiles.cut.columns = std::min(kRowElements, width.input);
  tiles.wide = RoundUp((tiles.cut.columns - 1) / width.stride + 2);
  tiles.reach = Reach(width) / width.stride;
  tiles.length = RoundUp(tiles.wide + tiles.reach);
  if (tiles.wide * width.stride > kMaxRowElements || tiles.length > kMaxRowElements) {
    return std::nullopt;
  }
  for (int64_t p = 0; p < width.stride; ++p) {
    tiles.begin_of.push_back(static_cast<int64_t>(tiles.begins.size()));
    for (int64_t t = width.kernel - 1; t >= 0; --t) {
      const int64_t offset = t * width.dilation;
      if (offset % width.stride != p) continue;
      tiles.begins.push_back(tiles.reach - offset / width.stride);
    }
  }
  tiles.begin_of.push_back(static_cast<int64_t>(tiles.begins.size()));
  const int64_t slices = std::min(plan.axes[0].kernel, plan.axes[0].output);
  const int64_t rows_reach = Reach(height) / height.stride + 1;
  tiles.cut.rows =
      Rows(static_cast<double>(height.stride), rows_reach, slices, tiles.length, height.input);
  tiles.source_rows =
      std::min((tiles.cut.rows - 1) / height.stride + rows_reach + 1, height.output);
  const int64_t shares = slices * tiles.source_rows;
  if (shares * tiles.length > kMaxJoinedElements) return std::nullopt;

  WorkspaceLayout layout;
  tiles.shares = layout.Add(Floats(shares * tiles.length));
  tiles.divisors = layout.Add(Floats(tiles.length));
  tiles.sums = layout.Add(Floats(tiles.length));
  tiles.phase = layout.Add(Floats(tiles.wide));
  tiles.row = layout.Add(Floats(width.stride * tiles.wide));
  tiles.list = layout.Add(static_cast<size_t>(plan.axes[0].kernel * height.kernel) * 8);
  tiles.done = layout.Add(static_cast<size_t>(shares));
  tiles.bytes = layout.total();
  return tiles;
}

double SpreadTiles::nanoseconds() const {
  const double rows = static_cast<double>(cut.rows);
  const double row_joins = rows * static_cast<double>(length * plan.axes[0].kernel) *
                           static_cast<double>(plan.axes[1].kernel) /
                           static_cast<double>(plan.axes[0].stride * plan.axes[1].stride);
  const double width_joins =
      rows * static_cast<double>(wide * (plan.axes[2].kernel + 3 * plan.axes[2].stride));
  return 40 + 0.06 * (row_joins + width_joins);
}

}  // namespace weft::cpu
