// Launches of strided_copy_body.h. Plans come from ops/kernels/cuda/blocks/strided_copy.h.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_STRIDED_COPY_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_STRIDED_COPY_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/blocks/broadcast.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

enum class CopyWay : uint8_t {
  kUnits,      // unit by unit
  kRepeats,    // a unit of the source fills 16 bytes
  kTransposes  // by tiles
};

// A copy of units of 1, 2, 4, 8 or 16 bytes. All counts and strides are in units, but that kRepeats
// counts the target in 16 bytes.
struct CopyPlan {
  CopyWay way = CopyWay::kUnits;
  int unit = 1;
  int alignment = 1;  // that both addresses must have
  int64_t from = 0;   // of the first unit
  int64_t to = 0;
  int64_t count = 0;  // of units, or of matrices; 0: nothing is copied
  bool has_small_indices = true;
  BroadcastMap<2, int32_t> small;  // one of them: of all, or of the matrices
  BroadcastMap<2, int64_t> large;
  // Of kTransposes.
  int pack = 1;  // units of an access; 16 / unit and, of 2 bytes, 4: by squares
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t from_stride = 0;
  int64_t to_stride = 0;
};

// REQUIRES: addresses that have the plan's alignment; they may not overlap.
int LaunchCopy(LaunchQueue queue, const CopyPlan& plan, const void* from, void* to);

// The first `bytes` bytes at `to` become those of `pattern`, 16 bytes, over and over.
int LaunchFill(LaunchQueue queue, const void* pattern, void* to, int64_t bytes);
// They become zeros.
int LaunchClear(LaunchQueue queue, void* to, int64_t bytes);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_STRIDED_COPY_LAUNCH_H_
