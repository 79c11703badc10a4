// Matrix products as sums over an index, straight from their definitions.
#include <algorithm>
#include <utility>

#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// A matrix operand of a batch: the element at (row, column) of the matrix for the output's batch
// `b`.
struct MatrixOperand {
  const ReferenceOperand& operand;
  Shape shape;  // rank >= 2
  bool transposed;

  int64_t rows() const { return shape.dim(shape.rank() - (transposed ? 1 : 2)); }
  int64_t columns() const { return shape.dim(shape.rank() - (transposed ? 2 : 1)); }
  Shape batch() const { return Shape(shape.dims().first(shape.rank() - 2)); }
  double at(int64_t matrix, int64_t row, int64_t column) const {
    if (transposed) std::swap(row, column);
    return operand[matrix * rows() * columns() + row * shape.dim(shape.rank() - 1) + column];
  }
};

void Multiply(const MatrixOperand& a, const MatrixOperand& b, const Shape& batch,
              ReferenceOperand& y) {
  const Shape a_batch = a.batch();
  const Shape b_batch = b.batch();
  int64_t next = 0;
  for (int64_t matrix = 0; matrix < batch.num_elements(); ++matrix) {
    const int64_t in_a = BroadcastOffset(a_batch, batch, matrix);
    const int64_t in_b = BroadcastOffset(b_batch, batch, matrix);
    for (int64_t i = 0; i < a.rows(); ++i) {
      for (int64_t j = 0; j < b.columns(); ++j, ++next) {
        for (int64_t k = 0; k < a.columns(); ++k) y[next] += a.at(in_a, i, k) * b.at(in_b, k, j);
      }
    }
  }
}

Shape BatchOfProduct(const Shape& a, const Shape& b) {
  Shape batch;
  const int rank = std::max(a.rank(), b.rank()) - 2;
  for (int i = 0; i < rank; ++i) {
    const int in_a = i - (rank - (a.rank() - 2));
    const int in_b = i - (rank - (b.rank() - 2));
    const int64_t a_dim = in_a < 0 ? 1 : a.dim(in_a);
    batch.AddDim(a_dim != 1 || in_b < 0 ? a_dim : b.dim(in_b));
  }
  return batch;
}

absl::Status MatMul(ReferenceCall& call) {
  Shape a = call.input(0).shape;
  Shape b = call.input(1).shape;
  if (a.rank() == 1) a = Shape{1, a.dim(0)};
  if (b.rank() == 1) b = Shape{b.dim(0), 1};
  Multiply({call.input(0), a, false}, {call.input(1), b, false}, BatchOfProduct(a, b),
           call.output(0));
  return absl::OkStatus();
}

absl::Status TransposingMatMul(ReferenceCall& call) {
  const MatrixOperand a{call.input(0), call.input(0).shape,
                        call.attributes().Int("transA", 0) != 0};
  const MatrixOperand b{call.input(1), call.input(1).shape,
                        call.attributes().Int("transB", 0) != 0};
  Multiply(a, b, BatchOfProduct(a.shape, b.shape), call.output(0));
  return absl::OkStatus();
}

absl::Status MatMulReduceBatch(ReferenceCall& call) {
  const Shape& a = call.input(0).shape;
  const int64_t rows = a.ProductOf(0, a.rank() - 1);
  const int64_t k = a.dim(a.rank() - 1);
  const int64_t n = call.output(0).shape.dim(1);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        call.output(0)[i * n + j] += call.input(0)[row * k + i] * call.input(1)[row * n + j];
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Gemm(ReferenceCall& call) {
  WEFT_RETURN_IF_ERROR(TransposingMatMul(call));
  const double alpha = call.attributes().Float("alpha", 1.0f);
  const double beta = call.attributes().Float("beta", 1.0f);
  ReferenceOperand& y = call.output(0);
  for (int64_t i = 0; i < y.size(); ++i) {
    y[i] *= alpha;
    if (!call.has_input(2)) continue;
    const ReferenceOperand& c = call.input(2);
    y[i] += beta * c[BroadcastOffset(c.shape, y.shape, i)];
  }
  return absl::OkStatus();
}

}  // namespace

WEFT_REGISTER_REFERENCE_KERNEL("", "MatMul", ReferenceKernel(MatMul));
WEFT_REGISTER_REFERENCE_KERNEL("", "Gemm", ReferenceKernel(Gemm));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "MatMul", ReferenceKernel(TransposingMatMul));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "MatMulReduceBatch", ReferenceKernel(MatMulReduceBatch));

}  // namespace weft::cpu
