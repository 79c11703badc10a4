// BatchedProduct: a product of matrices with any number of batch axes, as calls of BlasLt.
#ifndef WEFT_OPS_KERNELS_CUDA_LINEAR_BATCHED_PRODUCT_H_
#define WEFT_OPS_KERNELS_CUDA_LINEAR_BATCHED_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "tensor/shape.h"

namespace weft::cuda {

// An axis of a batch: its size, and elements from matrix to matrix along it in A, B and Y (0 where
// the operand has no such axis).
struct BatchAxis {
  int64_t size = 1;
  int64_t a = 0;
  int64_t b = 0;
  int64_t y = 0;
};

// One matrix of the batch, and the axes, outermost first. `matrix.batches` and its batch strides
// are not looked at; its alignments are those of the operands of Run. Aux lies as Y does. REQUIRES:
// all sizes are at least 1, and axes are of size 1 where the product has sums.
struct BatchedProductSpec {
  MatrixProductSpec matrix;
  std::vector<BatchAxis> axes;
};

// The product of two row-major operands of rank >= 2 whose leading axes broadcast, with all else as
// in a spec that nobody has touched. An operand that is transposed is stored so.
BatchedProductSpec ProductOfShapes(const Shape& a, const Shape& b, bool trans_a, bool trans_b);

// The same product with fewer calls: axes of size one are dropped, neighbours that are one axis are
// merged, an axis that A and Y have and B does not becomes rows of A, and a vector is stored the
// way that the library reads best. For tests.
BatchedProductSpec Simplified(BatchedProductSpec spec);

// The largest power of two of at most 64 that divides all the steps, which are in bytes: how far
// what lies at these steps from the begin of an operand is aligned.
int AlignmentOf(const std::vector<int64_t>& steps);

// The largest axis is a strided batch of the library; the others are loops of calls. Owned by a
// kernel; used by one thread at a time.
class BatchedProduct {
 public:
  // The errors of BlasLt::Prepare.
  static absl::StatusOr<std::unique_ptr<BatchedProduct>> Create(BlasLt& library,
                                                                const BatchedProductSpec& spec);

  size_t workspace_bytes() const { return product_->workspace_bytes(); }
  // The operands are those of the first matrix.
  absl::Status Run(const ProductOperands& operands, void* workspace, LaunchQueue queue);
  // Calls of the library in each run.
  int64_t calls() const { return calls_; }

 private:
  BatchedProduct() = default;

  std::unique_ptr<PreparedProduct> product_;
  std::vector<BatchAxis> loops_;  // strides in bytes
  int64_t calls_ = 1;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LINEAR_BATCHED_PRODUCT_H_
