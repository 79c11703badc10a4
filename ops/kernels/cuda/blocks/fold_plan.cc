#include "ops/kernels/cuda/blocks/fold_plan.h"

#include <algorithm>

namespace weft::cuda {
namespace {

// Blocks that fill a large GPU some times over, and units that are worth a block's start. The same
// for all cards: they say where sums are cut.
constexpr int64_t kWantedBlocks = 1056;
constexpr int64_t kMinUnitsPerThread = 8;
// Packets of a row for which single elements at its ends do not count.
constexpr int64_t kMinRaggedUnits = 16;

// The smallest n with 2^n >= value.
int LogCeil(int64_t value) {
  int log = 0;
  while ((int64_t{1} << log) < value) ++log;
  return log;
}

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Neighbouring axes of one fate merged, axes of size one gone. Major first.
struct FoldAxes {
  std::vector<StridedAxis> kept;
  std::vector<StridedAxis> reduced;
  bool columns = false;  // the last axis is kept

  static FoldAxes Of(const Shape& shape, const std::vector<bool>& is_reduced) {
    FoldAxes axes;
    int previous = -1;
    for (int d = 0; d < shape.rank(); ++d) {
      if (shape.dim(d) == 1) continue;
      const StridedAxis axis{shape.dim(d), shape.ProductOf(d + 1, shape.rank())};
      const int fate = is_reduced[d] ? 1 : 0;
      std::vector<StridedAxis>& same = fate == 1 ? axes.reduced : axes.kept;
      if (previous == fate) {
        same.back() = {same.back().size * axis.size, axis.stride};
      } else {
        same.push_back(axis);
      }
      previous = fate;
    }
    axes.columns = previous == 0;
    if (axes.kept.empty()) axes.kept.push_back({1, 0});
    if (axes.reduced.empty()) axes.reduced.push_back({1, 0});
    return axes;
  }

  // In packets of `width` of the last axis.
  bool CanPack(int width) const {
    const StridedAxis& last = columns ? kept.back() : reduced.back();
    return width == 1 || (last.stride == 1 && last.size > 0 && last.size % width == 0);
  }
  // Long rows of any size, one behind the other.
  bool CanBeRagged(int width) const {
    return width > 1 && !CanPack(width) && !columns && reduced.size() == 1 && kept.size() == 1 &&
           reduced.back().stride == 1 && reduced.back().size >= kMinRaggedUnits * width;
  }
  void Pack(int width) {
    if (width == 1) return;
    StridedAxis& last = columns ? kept.back() : reduced.back();
    last = {last.size / width, width};
  }
};

int64_t SizeOf(const std::vector<StridedAxis>& axes) {
  int64_t size = 1;
  for (const StridedAxis& axis : axes) size *= axis.size;
  return size;
}

void ShareThreads(FoldLayout& layout) {
  const int log_threads = LogCeil(kFoldThreads);
  const int log_units = LogCeil(std::max<int64_t>(layout.units, 1));
  if (layout.columns != 0) {
    const int log_groups = std::min(5, LogCeil(std::max<int64_t>(layout.groups, 1)));
    layout.log_parts = std::min(log_threads - log_groups, log_units);
  } else {
    // Four units a thread, but at least eight threads side by side.
    layout.log_parts = std::clamp(log_units - 2, std::min(log_units, 3), log_threads);
  }
  layout.log_lanes = log_threads - layout.log_parts;
}

FoldLaunch FoldLaunchOf(FoldAxes axes, int width) {
  FoldLaunch launch;
  launch.width = width;
  launch.outputs = SizeOf(axes.kept);
  axes.Pack(width);
  FoldLayout& layout = launch.layout;
  layout.columns = axes.columns ? 1 : 0;
  layout.groups = SizeOf(axes.kept);
  layout.units = SizeOf(axes.reduced);
  if (layout.groups == 0) {
    launch.grid.blocks = 0;
    return launch;
  }
  layout.kept = IndexOf(axes.kept);
  layout.reduced = IndexOf(axes.reduced);
  ShareThreads(layout);
  const int64_t tiles = CeilDivide(layout.groups, layout.lanes());
  const int64_t fitting =
      std::max<int64_t>(layout.units / (layout.parts() * kMinUnitsPerThread), 1);
  const int64_t chunks = std::clamp<int64_t>(kWantedBlocks / tiles, 1, fitting);
  layout.chunk = std::max<int64_t>(CeilDivide(layout.units, chunks), 1);
  launch.chunks = std::max<int64_t>(CeilDivide(layout.units, layout.chunk), 1);
  launch.grid = {.blocks = tiles, .threads = kFoldThreads, .blocks_y = launch.chunks};
  launch.second_log_lanes = std::min(5, LogCeil(launch.outputs));
  launch.second = {.blocks = CeilDivide(launch.outputs, int64_t{1} << launch.second_log_lanes),
                   .threads = kFoldThreads};
  return launch;
}

// Threads and chunks as of the packets that a row has room for.
FoldLaunch RaggedFoldLaunch(const FoldAxes& axes, int width) {
  FoldAxes rounded = axes;
  const int64_t size = axes.reduced.back().size;
  rounded.reduced.back().size = CeilDivide(size, width) * width;
  FoldLaunch launch = FoldLaunchOf(rounded, width);
  launch.layout.ragged = 1;
  launch.layout.kept = IndexOf(axes.kept);
  launch.layout.reduced = IndexOf(axes.reduced);
  launch.layout.units = size;
  launch.layout.chunk *= width;
  return launch;
}

}  // namespace

AxisIndex IndexOf(const std::vector<StridedAxis>& axes) {
  AxisIndex index;
  index.axes = static_cast<int32_t>(axes.size());
  index.wide = SizeOf(axes) >= (int64_t{1} << 31) ? 1 : 0;
  for (size_t d = 0; d < axes.size(); ++d) {
    const StridedAxis& axis = axes[axes.size() - 1 - d];
    index.sizes[d] = axis.size;
    index.strides[d] = axis.stride;
    if (index.wide == 0) {
      index.divisors[d] =
          FastDivisor<int32_t>(static_cast<int32_t>(std::max<int64_t>(axis.size, 1)));
    }
  }
  return index;
}

FoldPlan FoldPlan::Make(const Shape& shape, const std::vector<bool>& reduced, int width,
                        bool ragged) {
  const FoldAxes axes = FoldAxes::Of(shape, reduced);
  if (ragged && axes.CanBeRagged(width)) {
    return {FoldLaunchOf(axes, 1), RaggedFoldLaunch(axes, width)};
  }
  return {FoldLaunchOf(axes, 1), FoldLaunchOf(axes, axes.CanPack(width) ? width : 1)};
}

FoldPlan FoldPlan::OfRows(int64_t rows, int64_t columns, int width) {
  return Make(Shape{rows, columns}, {false, true}, width);
}

FoldPlan FoldPlan::OfColumns(int64_t rows, int64_t columns, int width) {
  // Packets of one column would be of several rows.
  return Make(Shape{rows, columns}, {true, false}, columns == 1 ? 1 : width);
}

const FoldLaunch& FoldPlan::For(std::initializer_list<const void*> operands, size_t bytes) const {
  return AreAligned(operands, bytes) ? wide : narrow;
}

size_t FoldPlan::workspace_bytes(size_t total_bytes) const {
  const auto totals = [](const FoldLaunch& launch) {
    return launch.chunks > 1 ? static_cast<size_t>(launch.chunks * launch.outputs) : size_t{0};
  };
  return std::max(totals(narrow), totals(wide)) * total_bytes;
}

bool AreAligned(std::initializer_list<const void*> operands, size_t bytes) {
  return std::all_of(operands.begin(), operands.end(), [bytes](const void* operand) {
    return reinterpret_cast<uintptr_t>(operand) % bytes == 0;
  });
}

}  // namespace weft::cuda
