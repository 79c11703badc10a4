// Launches of ops/kernels/cuda/movement/determinant.cu.
#ifndef WEFT_OPS_KERNELS_CUDA_MOVEMENT_DETERMINANT_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_MOVEMENT_DETERMINANT_LAUNCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Blocks at most; each has a matrix at a time, and memory of its own for it.
inline constexpr int64_t kDeterminantBlocks = 256;

// Of `matrices` matrices [n, n] at x, n >= 1. `workspace`: DeterminantBytes or CofactorBytes.
struct DeterminantCall {
  LaunchQueue queue;
  const void* x = nullptr;
  const void* dy = nullptr;  // backward
  void* y = nullptr;         // backward: dx
  void* workspace = nullptr;
  int64_t matrices = 0;
  int64_t n = 0;
};

inline size_t DeterminantBytes(int64_t matrices, int64_t n) {
  return static_cast<size_t>(std::min(matrices, kDeterminantBlocks) * n * n) * sizeof(double);
}
inline size_t CofactorBytes(int64_t matrices, int64_t n) {
  return static_cast<size_t>(std::min(matrices, kDeterminantBlocks) * (2 * n * n + 2 * n)) *
         sizeof(double);
}

// dtype: float32, float64, float16 or bfloat16. 0, or CUDA's error number.
int LaunchDeterminant(DType dtype, const DeterminantCall& call);
int LaunchDeterminantGrad(DType dtype, const DeterminantCall& call);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_MOVEMENT_DETERMINANT_LAUNCH_H_
