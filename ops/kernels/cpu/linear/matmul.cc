// MatMul, Gemm, ai.weft::MatMul and ai.weft::MatMulReduceBatch as one MatrixProduct each.
#include <algorithm>

#include "ops/kernels/cpu/blocks/matrix_product.h"

namespace weft::cpu {
namespace {

// The axes of `shape` before its last two, with ones in front up to `rank` axes.
Shape BatchOf(const Shape& shape, int rank) {
  Shape batch;
  for (int i = std::max(shape.rank() - 2, 0); i < rank; ++i) batch.AddDim(1);
  for (int i = 0; i + 2 < shape.rank(); ++i) batch.AddDim(shape.dim(i));
  return batch;
}

MatrixProduct ProductOfMatrices(const Shape& a, const Shape& b, bool trans_a, bool trans_b) {
  MatrixProduct product;
  const int batch_rank = std::max(a.rank(), b.rank()) - 2;
  product.a_batch = BatchOf(a, batch_rank);
  product.b_batch = BatchOf(b, batch_rank);
  product.m = a.dim(a.rank() - (trans_a ? 1 : 2));
  product.k = a.dim(a.rank() - (trans_a ? 2 : 1));
  product.n = b.dim(b.rank() - (trans_b ? 2 : 1));
  product.trans_a = trans_a;
  product.trans_b = trans_b;
  return product;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatMul(const PrepareContext& context) {
  Shape a = context.InputShape(0);
  Shape b = context.InputShape(1);
  if (a.rank() == 1) a = Shape{1, a.dim(0)};
  if (b.rank() == 1) b = Shape{b.dim(0), 1};
  return PrepareMatrixProduct(context, ProductOfMatrices(a, b, false, false));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTransposingMatMul(const PrepareContext& context) {
  const bool trans_a = context.attributes().Int("transA", 0) != 0;
  const bool trans_b = context.attributes().Int("transB", 0) != 0;
  return PrepareMatrixProduct(
      context, ProductOfMatrices(context.InputShape(0), context.InputShape(1), trans_a, trans_b));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatMulReduceBatch(const PrepareContext& context) {
  const Shape& a = context.InputShape(0);
  const Shape& b = context.InputShape(1);
  const int64_t rows = a.ProductOf(0, a.rank() - 1);
  const Shape a_matrix{rows, a.dim(a.rank() - 1)};
  const Shape b_matrix{rows, b.dim(b.rank() - 1)};
  return PrepareMatrixProduct(context, ProductOfMatrices(a_matrix, b_matrix, true, false));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGemm(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  MatrixProduct product =
      ProductOfMatrices(context.InputShape(0), context.InputShape(1),
                        attributes.Int("transA", 0) != 0, attributes.Int("transB", 0) != 0);
  product.alpha = attributes.Float("alpha", 1.0f);
  product.beta = attributes.Float("beta", 1.0f);
  product.has_c = context.HasInput(2) && product.beta != 0.0f;
  if (product.has_c) {
    const Shape& c = context.InputShape(2);
    const int64_t columns = c.rank() == 0 ? 1 : c.dim(c.rank() - 1);
    product.c_column_stride = columns == 1 ? 0 : 1;
    product.c_row_stride = c.rank() == 2 && c.dim(0) != 1 ? columns : 0;
  }
  return PrepareMatrixProduct(context, product);
}

}  // namespace

WEFT_REGISTER_KERNEL("", "MatMul", DeviceKind::kCpu, PrepareMatMul);
WEFT_REGISTER_KERNEL("", "Gemm", DeviceKind::kCpu, PrepareGemm);
WEFT_REGISTER_KERNEL("ai.weft", "MatMul", DeviceKind::kCpu, PrepareTransposingMatMul);
WEFT_REGISTER_KERNEL("ai.weft", "MatMulReduceBatch", DeviceKind::kCpu, PrepareMatMulReduceBatch);

}  // namespace weft::cpu
