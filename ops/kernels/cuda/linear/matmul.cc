// MatMul, Gemm, ai.weft::MatMul and ai.weft::MatMulReduceBatch: floating types through cuBLASLt,
// whole numbers by a kernel of ours.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/linear/batched_product.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "ops/kernels/cuda/linear/matmul_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// ---- What is multiplied.

// C[i, j] is at i * row + j * column.
struct AddendLayout {
  bool exists = false;
  int64_t row = 0;
  int64_t column = 0;
};

struct ProductNode {
  BatchedProductSpec product;
  AddendLayout c;
  int64_t matrices = 1;  // of Y
};

ProductNode ProductOf(const Shape& a, const Shape& b, bool trans_a, bool trans_b) {
  ProductNode node;
  node.product = ProductOfShapes(a, b, trans_a, trans_b);
  for (const BatchAxis& axis : node.product.axes) node.matrices *= axis.size;
  return node;
}

AddendLayout AddendOf(const Shape& c) {
  AddendLayout layout;
  layout.exists = true;
  const int64_t columns = c.rank() == 0 ? 1 : c.dim(c.rank() - 1);
  layout.column = columns == 1 ? 0 : 1;
  layout.row = c.rank() == 2 && c.dim(0) != 1 ? columns : 0;
  return layout;
}

bool IsWholeType(DType dtype) {
  return dtype == DType::kInt32 || dtype == DType::kInt64 || dtype == DType::kUint32 ||
         dtype == DType::kUint64;
}

bool IsRealType(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

// ---- Floating types.

// How C enters Y.
enum class AddendUse : uint8_t {
  kNone,
  kBias,       // the library adds one row to each
  kMatrix,     // the library reads a whole C
  kPrefilled,  // Y holds C before the product is added
};

class RealProduct final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const ProductNode& node) {
    auto kernel = std::unique_ptr<RealProduct>(new RealProduct(context, node));
    const MatrixProductSpec& matrix = node.product.matrix;
    if (matrix.m == 0 || matrix.n == 0 || node.matrices == 0) return kernel;
    if (matrix.k == 0) {
      kernel->PrepareSpread(matrix.beta);
      return kernel;
    }
    WEFT_RETURN_IF_ERROR(kernel->PrepareLibrary(context, node));
    return kernel;
  }

  size_t workspace_bytes() const override {
    return product_ == nullptr ? 0 : product_->workspace_bytes();
  }

  absl::Status Run(const KernelContext& context) override {
    const LaunchQueue queue = QueueOf(context);
    const void* c = node_.c.exists ? context.inputs[2] : nullptr;
    if (spreads_) {
      SpreadAddend spread = spread_;
      spread.c = c;
      spread.y = context.outputs[0];
      WEFT_RETURN_IF_ERROR(
          LaunchStatus(LaunchSpreadAddend(queue, dtype_, spread), "the addend of a product"));
    }
    if (product_ == nullptr) return absl::OkStatus();
    ProductOperands operands;
    operands.a = context.inputs[0];
    operands.b = context.inputs[1];
    operands.y = context.outputs[0];
    if (use_ == AddendUse::kBias) operands.bias = c;
    if (use_ == AddendUse::kMatrix) operands.c = c;
    return product_->Run(operands, context.workspace, queue);
  }

 private:
  RealProduct(const PrepareContext& context, const ProductNode& node)
      : dtype_(context.InputDType(0)), node_(node) {}

  void PrepareSpread(double factor) {
    const MatrixProductSpec& matrix = node_.product.matrix;
    spreads_ = true;
    spread_.rows = node_.matrices * matrix.m;
    spread_.columns = matrix.n;
    spread_.c_row = node_.c.row;
    spread_.c_column = node_.c.column;
    spread_.factor = factor;
  }

  // Double goes without epilogues: the library has them for types of its tensor cores.
  AddendUse ChooseUse() const {
    const MatrixProductSpec& matrix = node_.product.matrix;
    const AddendLayout& c = node_.c;
    if (!c.exists) return AddendUse::kNone;
    const bool one_row = c.row == 0 && (c.column == 1 || matrix.n == 1);
    if (one_row && matrix.beta == 1 && dtype_ != DType::kFloat64) return AddendUse::kBias;
    const bool rows_fit = c.row == matrix.n || matrix.m == 1;
    if (rows_fit && (c.column == 1 || matrix.n == 1)) return AddendUse::kMatrix;
    return AddendUse::kPrefilled;
  }

  absl::Status PrepareLibrary(const PrepareContext& context, const ProductNode& node) {
    WEFT_ASSIGN_OR_RETURN(BlasLt * library, BlasLtOf(context.device()));
    use_ = ChooseUse();
    BatchedProductSpec spec = node.product;
    spec.matrix.dtype = spec.matrix.y_dtype = dtype_;
    spec.matrix.tf32 = dtype_ == DType::kFloat32 && context.tf32();
    if (use_ == AddendUse::kBias) {
      spec.matrix.has_bias = true;
      spec.matrix.beta = 0;
      absl::StatusOr<std::unique_ptr<BatchedProduct>> fused =
          BatchedProduct::Create(*library, spec);
      if (fused.ok()) {
        product_ = *std::move(fused);
        return absl::OkStatus();
      }
      if (!absl::IsUnimplemented(fused.status())) return Named(context, fused.status());
      use_ = AddendUse::kPrefilled;
      spec.matrix.has_bias = false;
      spec.matrix.beta = node.product.matrix.beta;
    }
    if (use_ == AddendUse::kNone) spec.matrix.beta = 0;
    if (use_ == AddendUse::kPrefilled) PrepareSpread(1);
    absl::StatusOr<std::unique_ptr<BatchedProduct>> product =
        BatchedProduct::Create(*library, spec);
    if (!product.ok()) return Named(context, product.status());
    product_ = *std::move(product);
    return absl::OkStatus();
  }

  static absl::Status Named(const PrepareContext& context, const absl::Status& status) {
    if (!absl::IsUnimplemented(status)) return status;
    return context.Unimplemented(std::string(status.message()));
  }

  const DType dtype_;
  const ProductNode node_;
  AddendUse use_ = AddendUse::kNone;
  bool spreads_ = false;
  SpreadAddend spread_;
  std::unique_ptr<BatchedProduct> product_;
};

// ---- Whole numbers.

// Matrices along the largest batch axis are one launch; the other axes are loops of launches.
struct WholePlan {
  WholeProduct product;
  std::vector<BatchAxis> loops;
  int64_t launches = 1;
};

WholePlan PlanWhole(const ProductNode& node) {
  const BatchedProductSpec simple = Simplified(node.product);
  const MatrixProductSpec& matrix = simple.matrix;
  WholePlan plan;
  WholeProduct& product = plan.product;
  product.m = matrix.m;
  product.n = matrix.n;
  product.k = matrix.k;
  product.a_row = matrix.trans_a ? 1 : matrix.a_row;
  product.a_step = matrix.trans_a ? matrix.a_row : 1;
  product.b_step = matrix.trans_b ? 1 : matrix.b_row;
  product.b_column = matrix.trans_b ? matrix.b_row : 1;
  product.c_row = node.c.row;
  product.c_column = node.c.column;
  product.alpha = static_cast<float>(matrix.alpha);
  product.beta = static_cast<float>(matrix.beta);
  plan.loops = simple.axes;
  const auto largest =
      std::max_element(plan.loops.begin(), plan.loops.end(),
                       [](const BatchAxis& x, const BatchAxis& y) { return x.size < y.size; });
  if (largest != plan.loops.end()) {
    product.batches = largest->size;
    product.a_batch = largest->a;
    product.b_batch = largest->b;
    product.y_batch = largest->y;
    plan.loops.erase(largest);
  }
  for (const BatchAxis& loop : plan.loops) plan.launches *= loop.size;
  return plan;
}

absl::Status RunWhole(const WholePlan& plan, DType dtype, bool has_c,
                      const KernelContext& context) {
  const int64_t width = DTypeBytes(dtype, 1);
  for (int64_t launch = 0; launch < plan.launches; ++launch) {
    int64_t a = 0, b = 0, y = 0;
    int64_t rest = launch;
    for (auto loop = plan.loops.rbegin(); loop != plan.loops.rend(); ++loop) {
      const int64_t i = rest % loop->size;
      rest /= loop->size;
      a += i * loop->a * width;
      b += i * loop->b * width;
      y += i * loop->y * width;
    }
    WholeProduct product = plan.product;
    product.a = static_cast<const char*>(context.inputs[0]) + a;
    product.b = static_cast<const char*>(context.inputs[1]) + b;
    product.c = has_c ? context.inputs[2] : nullptr;
    product.y = static_cast<char*>(context.outputs[0]) + y;
    WEFT_RETURN_IF_ERROR(LaunchStatus(LaunchWholeProduct(QueueOf(context), dtype, product),
                                      "a product of whole numbers"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareProduct(const PrepareContext& context,
                                                       const ProductNode& node) {
  const DType dtype = context.InputDType(0);
  if (IsRealType(dtype)) return RealProduct::Create(context, node);
  if (!IsWholeType(dtype)) {
    return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(dtype))));
  }
  const bool is_empty =
      node.matrices == 0 || node.product.matrix.m == 0 || node.product.matrix.n == 0;
  return MakeKernel([plan = is_empty ? WholePlan() : PlanWhole(node), dtype, is_empty,
                     has_c = node.c.exists](const KernelContext& run) {
    return is_empty ? absl::OkStatus() : RunWhole(plan, dtype, has_c, run);
  });
}

// ---- The operators.

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatMul(const PrepareContext& context) {
  Shape a = context.InputShape(0);
  Shape b = context.InputShape(1);
  if (a.rank() == 1) a = Shape{1, a.dim(0)};
  if (b.rank() == 1) b = Shape{b.dim(0), 1};
  return PrepareProduct(context, ProductOf(a, b, false, false));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTransposingMatMul(const PrepareContext& context) {
  const bool trans_a = context.attributes().Int("transA", 0) != 0;
  const bool trans_b = context.attributes().Int("transB", 0) != 0;
  return PrepareProduct(context,
                        ProductOf(context.InputShape(0), context.InputShape(1), trans_a, trans_b));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatMulReduceBatch(const PrepareContext& context) {
  const Shape& a = context.InputShape(0);
  const Shape& b = context.InputShape(1);
  const int64_t rows = a.ProductOf(0, a.rank() - 1);
  const Shape a_matrix{rows, a.dim(a.rank() - 1)};
  const Shape b_matrix{rows, b.dim(b.rank() - 1)};
  return PrepareProduct(context, ProductOf(a_matrix, b_matrix, true, false));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGemm(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  ProductNode node = ProductOf(context.InputShape(0), context.InputShape(1),
                               attributes.Int("transA", 0) != 0, attributes.Int("transB", 0) != 0);
  node.product.matrix.alpha = attributes.Float("alpha", 1.0f);
  node.product.matrix.beta = attributes.Float("beta", 1.0f);
  if (context.HasInput(2) && node.product.matrix.beta != 0)
    node.c = AddendOf(context.InputShape(2));
  return PrepareProduct(context, node);
}

}  // namespace

WEFT_REGISTER_KERNEL("", "MatMul", DeviceKind::kCuda, PrepareMatMul);
WEFT_REGISTER_KERNEL("", "Gemm", DeviceKind::kCuda, PrepareGemm);
WEFT_REGISTER_KERNEL("ai.weft", "MatMul", DeviceKind::kCuda, PrepareTransposingMatMul);
WEFT_REGISTER_KERNEL("ai.weft", "MatMulReduceBatch", DeviceKind::kCuda, PrepareMatMulReduceBatch);

}  // namespace weft::cuda
