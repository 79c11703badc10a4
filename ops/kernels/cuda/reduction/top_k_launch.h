// Launches TopK.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_TOP_K_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_TOP_K_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

inline constexpr int kTopKThreads = 256;
inline constexpr int kTopKSorted = 2048;       // elements of a line that is sorted
inline constexpr int64_t kTopKSelected = 256;  // results of a longer line

struct TopKPlan {
  int64_t lines = 0;
  int64_t size = 0;
  int64_t stride = 1;
  int64_t k = 0;
  int32_t smallest = 0;
};

// Values or positions may be null. REQUIRES: plan.size <= kTopKSorted or plan.k <= kTopKSelected.
// x and values are of any number type. 0, or CUDA's error number.
int LaunchTopK(LaunchQueue queue, const TopKPlan& plan, DType dtype, const void* x, void* values,
               int64_t* positions);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_TOP_K_LAUNCH_H_
