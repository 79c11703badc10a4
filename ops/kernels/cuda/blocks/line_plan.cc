#include "ops/kernels/cuda/blocks/line_plan.h"

#include <algorithm>

#include "ops/kernels/cuda/blocks/fold_plan.h"

namespace weft::cuda {
namespace {

constexpr int kLogLineThreads = 8;
constexpr int kLogMinRowThreads = 3;
constexpr int kLogMaxRowThreads = 9;
constexpr int64_t kMinRaggedPackets = 16;
static_assert(kLineThreads == 1 << kLogLineThreads && kMaxRowThreads == 1 << kLogMaxRowThreads);

int LogOfCeiling(int64_t value) {  // the smallest n with 2^n >= value
  int log = 0;
  while ((int64_t{1} << log) < value) ++log;
  return log;
}

LineLaunch RowLaunch(LineLaunch launch, int64_t packets) {
  LineLayout& layout = launch.layout;
  launch.in_registers = true;
  layout.log_threads =
      std::max(LogOfCeiling((packets + kRowPackets - 1) / kRowPackets), kLogMinRowThreads);
  const int log_block = std::max(layout.log_threads, kLogLineThreads);
  const int64_t rows = int64_t{1} << (log_block - layout.log_threads);
  launch.grid = {.blocks = (layout.lines + rows - 1) / rows, .threads = 1 << log_block};
  return launch;
}

LineLaunch LineLaunchOf(int64_t lines, int64_t size, int64_t stride, int width, bool registers,
                        bool ragged = false) {
  LineLaunch launch;
  launch.width = width;
  LineLayout& layout = launch.layout;
  layout.lines = lines;
  layout.size = size;
  layout.stride = stride;
  if (lines == 0 || size == 0) {
    launch.grid.blocks = 0;
    return launch;
  }
  const int64_t packets = size / width;
  layout.ragged = ragged ? 1 : 0;
  if (!ragged && registers && stride == 1 && packets <= kMaxRowThreads * kRowPackets) {
    return RowLaunch(launch, packets);
  }
  const int log_packets = LogOfCeiling(packets);
  if (stride == 1) {
    layout.log_parts = std::clamp(log_packets - 2, std::min(log_packets, 3), kLogLineThreads);
  } else {
    const int log_lanes = std::min(5, LogOfCeiling(lines));
    layout.log_parts = std::min(kLogLineThreads - log_lanes, log_packets);
  }
  layout.log_lanes = kLogLineThreads - layout.log_parts;
  const int64_t lanes = int64_t{1} << layout.log_lanes;
  launch.grid = {.blocks = (lines + lanes - 1) / lanes, .threads = kLineThreads};
  return launch;
}

}  // namespace

LinePlan LinePlan::Make(int64_t lines, int64_t size, int64_t stride, int width, bool registers,
                        bool ragged) {
  const LineLaunch narrow = LineLaunchOf(lines, size, stride, 1, registers);
  if (stride == 1 && size % width == 0) {
    return {narrow, LineLaunchOf(lines, size, stride, width, registers)};
  }
  // In registers a row is read once, whatever its width.
  if (!ragged || stride != 1 || narrow.in_registers || size < kMinRaggedPackets * width) {
    return {narrow, narrow};
  }
  return {narrow, LineLaunchOf(lines, size, stride, width, registers, true)};
}

LinePlan LinePlan::Along(const Shape& shape, int axis, int width, bool registers, bool ragged) {
  if (shape.rank() == 0) return Make(1, 1, 1, width, registers);
  const int64_t stride = shape.ProductOf(axis + 1, shape.rank());
  return Make(shape.ProductOf(0, axis) * stride, shape.dim(axis), std::max<int64_t>(stride, 1),
              width, registers, ragged);
}

const LineLaunch& LinePlan::For(std::initializer_list<const void*> operands) const {
  return AreAligned(operands) ? wide : narrow;
}

}  // namespace weft::cuda
