// How kernels that work on whole lines of a tensor (ops/kernels/cuda/blocks/line_body.h) are
// launched, and how their threads share the lines. Plain values.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_LAYOUT_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_LAYOUT_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/divisor.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

inline constexpr int kLineThreads = 256;    // of a block of LineBody
inline constexpr int kMaxRowThreads = 512;  // of a block of RowBody
inline constexpr int kRowPackets = 4;       // of a row in a thread's registers

// `lines` lines of `size` elements that are `stride` apart; line l starts at
// l / stride * stride * size + l % stride.
struct LineLayout {
  int64_t lines = 0;
  int64_t size = 0;
  int64_t stride = 1;
  int32_t log_lanes = 0;    // LineBody: lines of a block
  int32_t log_parts = 8;    // LineBody: threads of a line, lanes * parts = kLineThreads
  int32_t log_threads = 5;  // RowBody: threads of a line
  // LineBody: rows whose size is no multiple of the packet. Each begins with single elements up to
  // the first multiple of a packet in the tensor, and ends with what is left of it.
  int32_t ragged = 0;
};

// One way to launch.
struct LineLaunch {
  LineLayout layout;
  LaunchGrid grid;
  int width = 1;              // elements of a packet
  bool in_registers = false;  // by RowBody, else by LineBody
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_LAYOUT_H_
