// Products with an epilogue: the kernel of what JoinProducts (ops/fusion/join_products.h) makes of
// a step, and the answer to which products cuBLASLt has one for.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/fusion/fused_node.h"
#include "ops/fusion/join_products.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/linear/batched_product.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "platform/log.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

static_assert(kProductAuxColumns == kAuxColumns);

constexpr int kNowhere = -1;

// A body as a call of the library. Operands are places among the inputs and outputs of the node.
struct JoinedPlan {
  BatchedProductSpec spec;
  // Inputs.
  int a = kNowhere, b = kNowhere, bias = kNowhere, addend = kNowhere, gelu_operand = kNowhere;
  // Outputs.
  int y = kNowhere, product_with_bias = kNowhere, sums = kNowhere;
};

// Reads the nodes of a body in their order. What it does not know is Internal: JoinProducts makes
// no such body.
class BodyReader {
 public:
  BodyReader(const Graph& body, bool tf32) : body_(body), tf32_(tf32) {}

  absl::StatusOr<JoinedPlan> Read() {
    for (const NodeId id : body_.node_ids()) {
      if (IsProduct(body_.node(id))) ReadProduct(body_.node(id));
    }
    for (const NodeId id : body_.node_ids()) {
      const Node& node = body_.node(id);
      if (IsProduct(node)) continue;
      if (node.op == "Add") {
        ReadAddend(node.inputs[node.inputs[0] == last_ ? 1 : 0]);
        last_ = node.outputs[0];
      } else if (node.op == "Gelu") {
        matrix().epilogue = ProductEpilogue::kTanhGelu;
        plan_.product_with_bias = OutputOf(last_);
        matrix().has_aux = plan_.product_with_bias != kNowhere;
        last_ = node.outputs[0];
      } else if (node.op == "TanhGeluGrad") {
        matrix().epilogue = ProductEpilogue::kTanhGeluGrad;
        matrix().has_aux = true;
        plan_.gelu_operand = InputOf(node.inputs[1]);
        last_ = node.outputs[0];
      } else if (node.op == "ReduceSum" || node.op == "SumToShape") {
        matrix().sums = node.inputs[0] == a_ ? SummedOperand::kA : SummedOperand::kB;
        plan_.sums = OutputOf(node.outputs[0]);
      } else {
        return Unknown(node);
      }
    }
    plan_.y = OutputOf(last_);
    if (plan_.a == kNowhere || plan_.b == kNowhere || plan_.y == kNowhere ||
        (matrix().has_bias && plan_.bias == kNowhere) ||
        (matrix().beta != 0 && plan_.addend == kNowhere)) {
      return absl::InternalError(
          absl::StrCat("the product of ", FusedParts(body_), " lacks an operand"));
    }
    return plan_;
  }

 private:
  MatrixProductSpec& matrix() { return plan_.spec.matrix; }

  static bool IsProduct(const Node& node) {
    return node.op == "MatMul" || node.op == "Gemm" || node.op == "MatMulReduceBatch";
  }

  absl::Status Unknown(const Node& node) const {
    return absl::InternalError(absl::StrCat("node '", node.name, "' (", node.op,
                                            ") is joined to a product, and no epilogue is that"));
  }

  void ReadProduct(const Node& node) {
    a_ = node.inputs[0];
    last_ = node.outputs[0];
    const Attributes& attributes = node.attributes;
    Shape a = ShapeOf(a_);
    Shape b = ShapeOf(node.inputs[1]);
    bool trans_a = attributes.Int("transA", 0) != 0;
    if (node.op == "MatMulReduceBatch") {
      a = Shape{a.ProductOf(0, a.rank() - 1), a.dim(a.rank() - 1)};
      b = Shape{b.ProductOf(0, b.rank() - 1), b.dim(b.rank() - 1)};
      trans_a = true;
    }
    plan_.spec = ProductOfShapes(a, b, trans_a, attributes.Int("transB", 0) != 0);
    matrix().dtype = matrix().y_dtype = body_.value(a_).type.dtype;
    matrix().tf32 = matrix().dtype == DType::kFloat32 && tf32_;
    matrix().alpha = attributes.Float("alpha", 1.0f);
    plan_.a = InputOf(a_);
    plan_.b = InputOf(node.inputs[1]);
    const bool has_addend = node.op == "Gemm" && node.inputs.size() > 2 && node.inputs[2].valid() &&
                            attributes.Float("beta", 1.0f) != 0;
    if (has_addend) ReadBias(node.inputs[2]);
  }

  // The first of one row is the bias.
  void ReadAddend(ValueId addend) {
    if (!matrix().has_bias && ShapeOf(addend).num_elements() == matrix().n) {
      ReadBias(addend);
    } else {
      matrix().beta = 1;
      plan_.addend = InputOf(addend);
    }
  }

  void ReadBias(ValueId bias) {
    matrix().has_bias = true;
    plan_.bias = InputOf(bias);
  }

  // A body is made where shapes are known.
  Shape ShapeOf(ValueId value) const { return *body_.value(value).type.shape.ToConcrete(); }
  static int PlaceIn(const std::vector<ValueId>& values, ValueId value) {
    const auto found = std::find(values.begin(), values.end(), value);
    return found == values.end() ? kNowhere : static_cast<int>(found - values.begin());
  }
  int InputOf(ValueId value) const { return PlaceIn(body_.inputs(), value); }
  int OutputOf(ValueId value) const { return PlaceIn(body_.outputs(), value); }

  const Graph& body_;
  const bool tf32_;
  JoinedPlan plan_;
  ValueId a_;
  ValueId last_;  // what the product has become so far
};

absl::StatusOr<bool> CublasLtTakesProduct(Device& device, const Graph& body, bool tf32) {
  WEFT_ASSIGN_OR_RETURN(const JoinedPlan plan, BodyReader(body, tf32).Read());
  WEFT_ASSIGN_OR_RETURN(BlasLt* const library, BlasLtOf(device));
  const absl::Status prepared = BatchedProduct::Create(*library, plan.spec).status();
  if (prepared.ok()) return true;
  if (!absl::IsUnimplemented(prepared)) return Annotate(prepared, FusedParts(body));
  Log(LogLevel::kInfo, "nodes ", FusedParts(body),
      " are not joined: ", std::string(prepared.message()));
  return false;
}

[[maybe_unused]] const bool gpus_take_products =
    RegisterProductTaker(DeviceKind::kCuda, CublasLtTakesProduct);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareJoined(const PrepareContext& context) {
  const Graph& body = FusedBodyOf(context.node());
  WEFT_ASSIGN_OR_RETURN(const JoinedPlan plan, BodyReader(body, context.tf32()).Read());
  WEFT_ASSIGN_OR_RETURN(BlasLt* const library, BlasLtOf(context.device()));
  absl::StatusOr<std::unique_ptr<BatchedProduct>> product =
      BatchedProduct::Create(*library, plan.spec);
  WEFT_RETURN_IF_ERROR(Annotate(product.status(), absl::StrCat("the nodes ", FusedParts(body))));
  const size_t bytes = (*product)->workspace_bytes();
  return MakeKernel(
      [product = *std::move(product), plan](const KernelContext& run) {
        ProductOperands operands;
        operands.a = run.inputs[plan.a];
        operands.b = run.inputs[plan.b];
        operands.y = run.outputs[plan.y];
        if (plan.addend != kNowhere) operands.c = run.inputs[plan.addend];
        if (plan.bias != kNowhere) operands.bias = run.inputs[plan.bias];
        if (plan.product_with_bias != kNowhere) operands.aux = run.outputs[plan.product_with_bias];
        // The library only reads it.
        if (plan.gelu_operand != kNowhere) {
          operands.aux = const_cast<void*>(run.inputs[plan.gelu_operand]);
        }
        if (plan.sums != kNowhere) operands.sums = run.outputs[plan.sums];
        return product->Run(operands, run.workspace, QueueOf(run));
      },
      bytes);
}

WEFT_REGISTER_KERNEL(kWeftDomain, kJoinedProductOp, DeviceKind::kCuda, PrepareJoined);

}  // namespace
}  // namespace weft::cuda
