// Puts keys in order, on the device.
#ifndef WEFT_OPS_KERNELS_CUDA_INDEXING_INDEX_SORT_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_INDEXING_INDEX_SORT_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

// So many keys are compared pair by pair, in one launch.
inline constexpr int64_t kRankedKeys = 16384;

// `count` keys in [0, limit). Equal keys stay in order. Value type.
struct IndexSort {
  int64_t count = 0;  // below 2^31
  int64_t limit = 1;  // at most 2^32

  // A multiple of 16.
  size_t workspace_bytes() const;
  // Where the caller writes the keys before Launch: in the workspace, or at sorted_keys.
  uint32_t* Keys(uint32_t* sorted_keys, void* workspace) const;
  // sorted_keys[p] = keys[order[p]], ascending; order is a permutation of 0 to count - 1. Both have
  // `count` elements. CUDA's error number.
  int Launch(LaunchQueue queue, uint32_t* sorted_keys, uint32_t* order, void* workspace) const;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_INDEXING_INDEX_SORT_LAUNCH_H_
