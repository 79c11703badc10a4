// Launches kernels of lines (ops/kernels/cuda/blocks/line_body.h). For .cu files.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_LAUNCH_H_

#include "ops/kernels/cuda/blocks/line_body.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {

// REQUIRES: !line.in_registers; a ragged line has a Source with kRagged. 0, or CUDA's error number.
template <class Source>
int LaunchLines(LaunchQueue queue, const LineLaunch& line, const Source& source) {
  if constexpr (Source::kWidth > 1) {
    if (line.width > 1) {
      return Launch<kLineThreads>(queue, line.grid,
                                  LineBody<Source::kWidth, Source>{line.layout, source});
    }
  }
  return Launch<kLineThreads>(queue, line.grid, LineBody<1, Source>{line.layout, source});
}

// REQUIRES: line.in_registers.
template <class Source>
int LaunchRows(LaunchQueue queue, const LineLaunch& line, const Source& source) {
  if constexpr (Source::kWidth > 1) {
    if (line.width > 1) {
      return Launch<kMaxRowThreads>(queue, line.grid,
                                    RowBody<Source::kWidth, Source>{line.layout, source});
    }
  }
  return Launch<kMaxRowThreads>(queue, line.grid, RowBody<1, Source>{line.layout, source});
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_LAUNCH_H_
