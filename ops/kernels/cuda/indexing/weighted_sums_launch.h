// Sums with weights, by the element that each term gives to: gradients that would scatter.
#ifndef WEFT_OPS_KERNELS_CUDA_INDEXING_WEIGHTED_SUMS_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_INDEXING_WEIGHTED_SUMS_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/indexing/index_sort_launch.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

// The terms of a few groups: term t = (group * sources + source) * parts + part has a key and a
// weight, which all channels of the group share. Then
//   y[group, channel, element] = the sum of weights[t] * x[group, channel, source]
// over the terms t with key group * elements + element, in ascending order. Terms are put in order
// by their keys: a sum is made by one thread, and has the same bits each time. Value type.
struct WeightedSums {
  int64_t groups = 0;
  int64_t channels = 0;  // of a group
  int64_t sources = 0;
  int64_t parts = 1;
  int64_t elements = 0;
  bool has_wide_weights = false;  // float64, else float32

  int64_t terms() const { return groups * sources * parts; }                // below 2^31
  int64_t all_elements() const { return groups * elements; }                // below 2^32 - 1
  uint32_t NoKey() const { return static_cast<uint32_t>(all_elements()); }  // gives to nothing

  size_t workspace_bytes() const;
  // Where the caller writes keys and weights before Launch.
  uint32_t* Keys(void* workspace) const;
  void* Weights(void* workspace) const;
  // x [groups, channels, sources], y [groups, channels, elements]; all of y is written. CUDA's
  // error number.
  int Launch(LaunchQueue queue, const RealInput& x, const RealOutput& y, void* workspace) const;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_INDEXING_WEIGHTED_SUMS_LAUNCH_H_
