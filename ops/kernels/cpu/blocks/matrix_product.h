// The one matrix product behind MatMul, Gemm and their gradients.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_MATRIX_PRODUCT_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_MATRIX_PRODUCT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernel.h"

namespace weft::cpu {

// Y[batch..., m, n] = alpha op(A) op(B) + beta C, all row-major and dense. Operands of a kernel:
// inputs A, B and, if has_c, C; output Y.
struct MatrixProduct {
  // Leading axes of the operands, of one rank; axes of size one broadcast.
  Shape a_batch;
  Shape b_batch;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool trans_a = false;  // A is stored [k, m]
  bool trans_b = false;  // B is stored [n, k]
  float alpha = 1.0f;
  float beta = 1.0f;
  // C[i, j] is at i * c_row_stride + j * c_column_stride; no batch then.
  bool has_c = false;
  int64_t c_row_stride = 0;
  int64_t c_column_stride = 0;

  Shape batch() const;  // broadcast
};

// Folds batch axes of A into m where B has none, and merges neighbouring batch axes that broadcast
// alike.
MatrixProduct Simplified(const MatrixProduct& product);

// Who computes a product of float32.
enum class ProductBy : uint8_t {
  kFastest,  // the one that was measured to be faster for such a product
  kOnednn,
  kPacked,  // packed_product.h: a row's bits do not depend on the other rows or on threads
};

// float32 by our own kernels or oneDNN, which pack a constant B once, and bfloat16 where the
// processor multiplies it; elsewhere the 16-bit floats as float32, rounded once; other types by
// plain loops. `by` is for tests and benchmarks.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatrixProduct(const PrepareContext& context,
                                                             const MatrixProduct& product,
                                                             ProductBy by = ProductBy::kFastest);

// The same for operands without elements to sum: fills Y with beta C, or zeros.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareLoopProduct(const PrepareContext& context,
                                                           const MatrixProduct& product);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_MATRIX_PRODUCT_H_
