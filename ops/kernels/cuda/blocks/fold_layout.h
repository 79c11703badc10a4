// How a fold (ops/kernels/cuda/blocks/fold_body.h) is launched, and how its threads share its
// elements. Plain values.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_LAYOUT_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_LAYOUT_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/axis_index.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

inline constexpr int kFoldThreads = 256;

// The elements of an output are cut into units of a packet each. Where the last axis is reduced, a
// packet's elements all belong to one output, and neighbouring threads take neighbouring units.
// Else (columns) they belong to neighbouring outputs, and neighbouring threads take other outputs.
struct FoldLayout {
  AxisIndex kept;         // offset of a group's first element
  AxisIndex reduced;      // offset of a unit from it
  int64_t groups = 0;     // outputs, or with columns packets of outputs
  int64_t units = 0;      // of each group
  int64_t chunk = 0;      // of them for each block
  int32_t log_lanes = 0;  // groups of a block
  int32_t log_parts = 8;  // threads that share a group; lanes * parts = kFoldThreads
  int32_t columns = 0;
  // Rows whose size is no multiple of the packet: units and chunks are elements. Each chunk begins
  // with single elements up to the first multiple of a packet, and ends with what is left of it.
  int32_t ragged = 0;

  WEFT_GPU int lanes() const { return 1 << log_lanes; }
  WEFT_GPU int parts() const { return 1 << log_parts; }
};

// One way to launch a fold.
struct FoldLaunch {
  FoldLayout layout;
  LaunchGrid grid;
  int width = 1;       // elements of a packet
  int64_t chunks = 1;  // with more than one, their totals are folded by a second launch
  int64_t outputs = 0;
  LaunchGrid second;
  int32_t second_log_lanes = 0;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_LAYOUT_H_
