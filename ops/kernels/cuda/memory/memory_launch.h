// Launches of what a program does to memory between kernels. For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_MEMORY_MEMORY_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_MEMORY_MEMORY_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

// All return 0 or CUDA's error number; none waits. Addresses are aligned to an element.

// into[i] += from[i]. T: floats of 16 to 64 bits and integers of 8 to 64.
template <typename T>
int LaunchSum(LaunchQueue queue, int64_t elements, const T* from, T* into);

// Rows of bytes with strides; sizes and addresses may be anything.
struct RowsToCopy {
  int64_t rows = 0;
  int64_t bytes = 0;
  int64_t from_stride = 0;
  int64_t into_stride = 0;
};
int LaunchCopyRows(LaunchQueue queue, const RowsToCopy& rows, const void* from, void* into);

// *first = value.
int LaunchSetFirst(LaunchQueue queue, int64_t value, int64_t* first);

// *first = the smaller of itself and the first element that is an infinity or a NaN; `none` is
// larger than any number of an element. T: floats of 16 to 64 bits.
template <typename T>
int LaunchFindNonFinite(LaunchQueue queue, int64_t elements, const T* data, int64_t none,
                        int64_t* first);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_MEMORY_MEMORY_LAUNCH_H_
