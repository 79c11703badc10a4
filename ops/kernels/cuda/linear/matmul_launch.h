// What matrix products launch besides cuBLASLt.
#ifndef WEFT_OPS_KERNELS_CUDA_LINEAR_MATMUL_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_LINEAR_MATMUL_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Y[i, j] = factor * C[i * c_row + j * c_column], or 0 without C; Y is dense. One of the floating
// types of products.
struct SpreadAddend {
  const void* c = nullptr;
  void* y = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t c_row = 0;
  int64_t c_column = 0;
  double factor = 1;
};
int LaunchSpreadAddend(LaunchQueue queue, DType dtype, const SpreadAddend& spread);

// Y[i] = alpha A[i] B[i] + beta C for whole numbers, which wrap around. Those of 8 and 16 bits have
// alpha and beta 1. Steps in elements; A's element (i, l) is at i * a_row + l * a_step, B's (l, j)
// at l * b_step + j * b_column. Y's matrices are dense.
struct WholeProduct {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  // null: none
  void* y = nullptr;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_step = 0;
  int64_t b_step = 0, b_column = 0;
  int64_t c_row = 0, c_column = 0;
  int64_t batches = 1, a_batch = 0, b_batch = 0, y_batch = 0;
  float alpha = 1, beta = 1;
};
int LaunchWholeProduct(LaunchQueue queue, DType dtype, const WholeProduct& product);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LINEAR_MATMUL_LAUNCH_H_
