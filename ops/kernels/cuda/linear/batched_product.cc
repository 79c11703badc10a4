#include "ops/kernels/cuda/linear/batched_product.h"

#include <algorithm>
#include <utility>

#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Arena memory is aligned to 64 bytes.
constexpr int64_t kArenaAlignment = 64;

// True if `inner` runs through what one step of `outer` skips, in each operand.
bool AreOneAxis(const BatchAxis& outer, const BatchAxis& inner) {
  return outer.a == inner.a * inner.size && outer.b == inner.b * inner.size &&
         outer.y == inner.y * inner.size;
}

void MergeAxes(std::vector<BatchAxis>& axes) {
  std::vector<BatchAxis> merged;
  for (const BatchAxis& axis : axes) {
    if (axis.size == 1) continue;
    if (!merged.empty() && AreOneAxis(merged.back(), axis)) {
      const int64_t size = merged.back().size * axis.size;
      merged.back() = axis;
      merged.back().size = size;
    } else {
      merged.push_back(axis);
    }
  }
  axes = std::move(merged);
}

// A vector as the library reads best, along a row of its storage.
void StoreVectorsAsRows(MatrixProductSpec& matrix) {
  if (matrix.n == 1 && !matrix.trans_b && matrix.b_row == 1) {
    matrix.trans_b = true;
    matrix.b_row = matrix.k;
  }
  if (matrix.m == 1 && matrix.trans_a && matrix.a_row == 1) {
    matrix.trans_a = false;
    matrix.a_row = matrix.k;
  }
}

// The innermost axis as further rows of A and Y, where B is the same for all of it.
bool FoldIntoRows(MatrixProductSpec& matrix, std::vector<BatchAxis>& axes) {
  if (axes.empty() || matrix.trans_a) return false;
  const BatchAxis& axis = axes.back();
  if (axis.b != 0 || axis.a != matrix.m * matrix.a_row || axis.y != matrix.m * matrix.y_row) {
    return false;
  }
  matrix.m *= axis.size;
  axes.pop_back();
  return true;
}

int64_t WidthOf(DType dtype) { return DTypeBytes(dtype, 1); }

void SetAlignments(const std::vector<BatchAxis>& loops_in_bytes, MatrixProductSpec& matrix) {
  std::vector<int64_t> a, b, y;
  for (const BatchAxis& loop : loops_in_bytes) {
    a.push_back(loop.a);
    b.push_back(loop.b);
    y.push_back(loop.y);
  }
  matrix.a_alignment = std::min(matrix.a_alignment, AlignmentOf(a));
  matrix.b_alignment = std::min(matrix.b_alignment, AlignmentOf(b));
  matrix.y_alignment = std::min(matrix.y_alignment, AlignmentOf(y));
}

// Takes the axis with the largest size out of the loops: the library's own batch.
void TakeStridedBatch(std::vector<BatchAxis>& loops, MatrixProductSpec& matrix) {
  matrix.batches = 1;
  matrix.a_batch = matrix.b_batch = matrix.y_batch = 0;
  const auto largest =
      std::max_element(loops.begin(), loops.end(),
                       [](const BatchAxis& x, const BatchAxis& y) { return x.size < y.size; });
  if (largest == loops.end()) return;
  matrix.batches = largest->size;
  matrix.a_batch = largest->a;
  matrix.b_batch = largest->b;
  matrix.y_batch = largest->y;
  loops.erase(largest);
}

const void* Offset(const void* address, int64_t bytes) {
  return static_cast<const char*>(address) + bytes;
}

// The axis of `shape` that belongs to batch axis `axis` of `rank`; 1 where it has none.
int64_t BatchDim(const Shape& shape, int rank, int axis) {
  const int own = axis - (rank - (shape.rank() - 2));
  return own < 0 ? 1 : shape.dim(own);
}

}  // namespace

BatchedProductSpec ProductOfShapes(const Shape& a, const Shape& b, bool trans_a, bool trans_b) {
  BatchedProductSpec spec;
  MatrixProductSpec& matrix = spec.matrix;
  matrix.m = a.dim(a.rank() - (trans_a ? 1 : 2));
  matrix.k = a.dim(a.rank() - (trans_a ? 2 : 1));
  matrix.n = b.dim(b.rank() - (trans_b ? 2 : 1));
  matrix.trans_a = trans_a;
  matrix.trans_b = trans_b;
  matrix.a_row = a.dim(a.rank() - 1);
  matrix.b_row = b.dim(b.rank() - 1);
  matrix.y_row = matrix.n;
  const int rank = std::max(a.rank(), b.rank()) - 2;
  int64_t a_step = matrix.m * matrix.k;
  int64_t b_step = matrix.k * matrix.n;
  int64_t y_step = matrix.m * matrix.n;
  spec.axes.resize(rank);
  for (int axis = rank - 1; axis >= 0; --axis) {
    const int64_t a_size = BatchDim(a, rank, axis);
    const int64_t b_size = BatchDim(b, rank, axis);
    BatchAxis& of_axis = spec.axes[axis];
    of_axis.size = a_size == 1 ? b_size : a_size;
    of_axis.a = a_size == 1 ? 0 : a_step;
    of_axis.b = b_size == 1 ? 0 : b_step;
    of_axis.y = y_step;
    a_step *= a_size;
    b_step *= b_size;
    y_step *= of_axis.size;
  }
  return spec;
}

int AlignmentOf(const std::vector<int64_t>& steps) {
  int64_t alignment = kArenaAlignment;
  for (const int64_t step : steps) {
    while (step % alignment != 0) alignment /= 2;
  }
  return static_cast<int>(alignment);
}

BatchedProductSpec Simplified(BatchedProductSpec spec) {
  StoreVectorsAsRows(spec.matrix);
  MergeAxes(spec.axes);
  while (FoldIntoRows(spec.matrix, spec.axes)) {
  }
  return spec;
}

absl::StatusOr<std::unique_ptr<BatchedProduct>> BatchedProduct::Create(
    BlasLt& library, const BatchedProductSpec& spec) {
  BatchedProductSpec simple = Simplified(spec);
  auto product = std::unique_ptr<BatchedProduct>(new BatchedProduct());
  TakeStridedBatch(simple.axes, simple.matrix);
  const int64_t width = WidthOf(simple.matrix.dtype);
  const int64_t y_width = WidthOf(simple.matrix.y_dtype);
  for (BatchAxis axis : simple.axes) {
    axis.a *= width;
    axis.b *= width;
    axis.y *= y_width;
    product->calls_ *= axis.size;
    product->loops_.push_back(axis);
  }
  SetAlignments(product->loops_, simple.matrix);
  WEFT_ASSIGN_OR_RETURN(product->product_, library.Prepare(simple.matrix));
  return product;
}

absl::Status BatchedProduct::Run(const ProductOperands& operands, void* workspace,
                                 LaunchQueue queue) {
  for (int64_t call = 0; call < calls_; ++call) {
    int64_t a = 0, b = 0, y = 0;
    int64_t rest = call;
    for (auto loop = loops_.rbegin(); loop != loops_.rend(); ++loop) {
      const int64_t i = rest % loop->size;
      rest /= loop->size;
      a += i * loop->a;
      b += i * loop->b;
      y += i * loop->y;
    }
    ProductOperands of_call = operands;
    of_call.a = Offset(operands.a, a);
    of_call.b = Offset(operands.b, b);
    of_call.c = operands.c == nullptr ? nullptr : Offset(operands.c, y);
    of_call.y = static_cast<char*>(operands.y) + y;
    if (operands.aux != nullptr) of_call.aux = static_cast<char*>(operands.aux) + y;
    WEFT_RETURN_IF_ERROR(product_->Multiply(of_call, workspace, queue));
  }
  return absl::OkStatus();
}

}  // namespace weft::cuda
