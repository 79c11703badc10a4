// Matrix products: ONNX's MatMul and Gemm, and the two products that their gradients need.
//
// ai.weft::MatMul has attributes transA and transB (the last two axes of that operand are swapped);
// both operands have rank >= 2 and their leading axes broadcast.
// ai.weft::MatMulReduceBatch contracts all leading axes: A[..., k], B[..., n] -> Y[k, n]. It is the
// gradient of a weight under a batch of rows, as one product over the flattened rows.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

const std::vector<DType> kProductTypes = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                          DType::kBfloat16, DType::kInt32,   DType::kInt64,
                                          DType::kUint32,   DType::kUint64};

Attributes Transposed(bool a, bool b) { return {{"transA", int64_t{a}}, {"transB", int64_t{b}}}; }

// ---- Shapes.

absl::Status CheckContraction(const InferenceContext& context, const Dim& a, const Dim& b) {
  if (!a.is_known() || !b.is_known() || a.size() == b.size()) return absl::OkStatus();
  return context.Error(absl::StrCat("the operands are contracted over axes of sizes ", a.size(),
                                    " and ", b.size(), ", which must be equal"));
}

absl::StatusOr<Dim> BroadcastDim(const InferenceContext& context, const Dim& a, const Dim& b) {
  if (a == b) return a;
  if (a.is_known() && a.size() == 1) return b;
  if (b.is_known() && b.size() == 1) return a;
  if (a.is_known() && b.is_known()) {
    return context.Error(
        absl::StrCat("batch axes of sizes ", a.size(), " and ", b.size(), " cannot be broadcast"));
  }
  if (a.is_known()) return a;
  if (b.is_known()) return b;
  return Dim();
}

// The batch axes of a product: all axes but the last two of operands with rank >= 2.
absl::StatusOr<std::vector<Dim>> BroadcastBatch(const InferenceContext& context,
                                                const std::vector<Dim>& a,
                                                const std::vector<Dim>& b) {
  const int rank = static_cast<int>(std::max(a.size(), b.size()));
  const auto batch_dim = [&](const std::vector<Dim>& dims, int axis) {
    const int own = axis - (rank - static_cast<int>(dims.size()));
    return own < 0 ? Dim(1) : dims[own];
  };
  std::vector<Dim> batch;
  for (int i = 0; i < rank - 2; ++i) {
    WEFT_ASSIGN_OR_RETURN(Dim dim, BroadcastDim(context, batch_dim(a, i), batch_dim(b, i)));
    batch.push_back(std::move(dim));
  }
  return batch;
}

absl::Status RequireRank(const InferenceContext& context, int input, int min_rank) {
  const SymbolicShape& shape = context.InputShape(input);
  if (!shape.has_rank() || shape.rank() >= min_rank) return absl::OkStatus();
  return context.Error(absl::StrCat("input ", input, " has shape ", shape.ToString(),
                                    ", expected rank ", min_rank, " or more"));
}

// Sets the output of a product of the operands as they are once vectors have become matrices.
absl::Status InferProduct(InferenceContext& context, std::vector<Dim> a, std::vector<Dim> b,
                          bool drop_row, bool drop_column) {
  WEFT_RETURN_IF_ERROR(CheckContraction(context, a.back(), b[b.size() - 2]));
  WEFT_ASSIGN_OR_RETURN(std::vector<Dim> dims, BroadcastBatch(context, a, b));
  if (!drop_row) dims.push_back(a[a.size() - 2]);
  if (!drop_column) dims.push_back(b.back());
  context.SetOutput(0, context.InputType(0).dtype, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

absl::Status InferMatMul(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  WEFT_RETURN_IF_ERROR(RequireRank(context, 0, 1));
  WEFT_RETURN_IF_ERROR(RequireRank(context, 1, 1));
  if (!context.InputShape(0).has_rank() || !context.InputShape(1).has_rank()) {
    context.SetOutput(0, context.InputType(0).dtype, SymbolicShape());
    return absl::OkStatus();
  }
  std::vector<Dim> a = context.InputShape(0).dims();
  std::vector<Dim> b = context.InputShape(1).dims();
  const bool row_vector = a.size() == 1;
  const bool column_vector = b.size() == 1;
  if (row_vector) a.insert(a.begin(), Dim(1));
  if (column_vector) b.push_back(Dim(1));
  return InferProduct(context, std::move(a), std::move(b), row_vector, column_vector);
}

absl::Status InferTransposingMatMul(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  WEFT_RETURN_IF_ERROR(RequireRank(context, 0, 2));
  WEFT_RETURN_IF_ERROR(RequireRank(context, 1, 2));
  if (!context.InputShape(0).has_rank() || !context.InputShape(1).has_rank()) {
    context.SetOutput(0, context.InputType(0).dtype, SymbolicShape());
    return absl::OkStatus();
  }
  std::vector<Dim> a = context.InputShape(0).dims();
  std::vector<Dim> b = context.InputShape(1).dims();
  if (context.attributes().Int("transA", 0) != 0) std::swap(a[a.size() - 2], a[a.size() - 1]);
  if (context.attributes().Int("transB", 0) != 0) std::swap(b[b.size() - 2], b[b.size() - 1]);
  return InferProduct(context, std::move(a), std::move(b), false, false);
}

absl::Status InferMatMulReduceBatch(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  WEFT_RETURN_IF_ERROR(RequireRank(context, 0, 1));
  WEFT_RETURN_IF_ERROR(RequireRank(context, 1, 1));
  const SymbolicShape& a = context.InputShape(0);
  const SymbolicShape& b = context.InputShape(1);
  const Dim k = a.has_rank() ? a.dims().back() : Dim();
  const Dim n = b.has_rank() ? b.dims().back() : Dim();
  if (a.has_rank() && b.has_rank()) {
    if (a.rank() != b.rank()) {
      return context.Error(absl::StrCat("operands of shapes ", a.ToString(), " and ", b.ToString(),
                                        " must have the same rank"));
    }
    for (int i = 0; i + 1 < a.rank(); ++i) {
      WEFT_RETURN_IF_ERROR(CheckContraction(context, a.dim(i), b.dim(i)));
    }
  }
  context.SetOutput(0, context.InputType(0).dtype, SymbolicShape({k, n}));
  return absl::OkStatus();
}

absl::Status CheckGemmBias(const InferenceContext& context, const Dim& m, const Dim& n) {
  if (!context.HasInput(2) || !context.InputShape(2).has_rank()) return absl::OkStatus();
  const SymbolicShape& c = context.InputShape(2);
  const auto fits = [](const Dim& dim, const Dim& into) {
    return !dim.is_known() || dim.size() == 1 || !into.is_known() || dim.size() == into.size();
  };
  const bool ok = c.rank() <= 2 && (c.rank() < 1 || fits(c.dims().back(), n)) &&
                  (c.rank() < 2 || fits(c.dim(0), m));
  if (ok) return absl::OkStatus();
  return context.Error(absl::StrCat("C has shape ", c.ToString(),
                                    ", which does not broadcast to the product's [", m.ToString(),
                                    ",", n.ToString(), "]"));
}

absl::Status InferGemm(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(
      CheckSameDType(context, context.HasInput(2) ? std::vector<int>{0, 1, 2} : std::vector{0, 1}));
  Dim m, n, k_a, k_b;
  for (int i = 0; i < 2; ++i) {
    const SymbolicShape& shape = context.InputShape(i);
    if (!shape.has_rank()) continue;
    if (shape.rank() != 2) {
      return context.Error(
          absl::StrCat(i == 0 ? "A" : "B", " has shape ", shape.ToString(), ", expected a matrix"));
    }
    const bool transposed = context.attributes().Int(i == 0 ? "transA" : "transB", 0) != 0;
    (i == 0 ? m : k_b) = shape.dim(transposed ? 1 : 0);
    (i == 0 ? k_a : n) = shape.dim(transposed ? 0 : 1);
  }
  WEFT_RETURN_IF_ERROR(CheckContraction(context, k_a, k_b));
  WEFT_RETURN_IF_ERROR(CheckGemmBias(context, m, n));
  context.SetOutput(0, context.InputType(0).dtype, SymbolicShape({m, n}));
  return absl::OkStatus();
}

// ---- Gradients.

// A and B of rank >= 2 of Y = op(A) op(B); dy has the shape of the broadcast product.
ValueId ProductGradientA(GraphBuilder& g, ValueId dy, ValueId b, bool trans_a, bool trans_b) {
  return trans_a ? g.WeftOp("MatMul", {b, dy}, Transposed(trans_b, true))
                 : g.WeftOp("MatMul", {dy, b}, Transposed(false, !trans_b));
}
ValueId ProductGradientB(GraphBuilder& g, ValueId dy, ValueId a, bool trans_a, bool trans_b) {
  return trans_b ? g.WeftOp("MatMul", {dy, a}, Transposed(true, trans_a))
                 : g.WeftOp("MatMul", {a, dy}, Transposed(!trans_a, false));
}

// Both operands vectors: y is a scalar.
absl::Status DotGradient(GradientContext& context, ValueId dy) {
  GraphBuilder& g = context.builder();
  for (int i = 0; i < 2; ++i) {
    if (!context.NeedsInputGradient(i)) continue;
    context.SetInputGradient(i, g.Op("Mul", {dy, context.Input(1 - i)}));
  }
  return g.status();
}

// One operand a vector: it becomes a matrix with one row or column, as in the definition of MatMul.
absl::Status VectorGradient(GradientContext& context, ValueId dy, bool row_vector) {
  GraphBuilder& g = context.builder();
  const ValueId a = context.Input(0);
  const ValueId b = context.Input(1);
  const ValueId axis = g.Ints({row_vector ? -2 : -1});
  const ValueId matrix_dy = g.Op("Unsqueeze", {dy, axis});
  if (context.NeedsInputGradient(0)) {
    const ValueId matrix_b = row_vector ? b : g.Op("Unsqueeze", {b, axis});
    ValueId da = ProductGradientA(g, matrix_dy, matrix_b, false, false);
    if (row_vector) da = g.Op("Squeeze", {da, axis});
    context.SetInputGradient(0, SumToLike(g, da, a));
  }
  if (context.NeedsInputGradient(1)) {
    const ValueId matrix_a = row_vector ? g.Op("Unsqueeze", {a, axis}) : a;
    ValueId db = ProductGradientB(g, matrix_dy, matrix_a, false, false);
    if (!row_vector) db = g.Op("Squeeze", {db, axis});
    context.SetInputGradient(1, SumToLike(g, db, b));
  }
  return g.status();
}

absl::Status MatMulGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int rank_a, RankForGradient(context, context.Input(0)));
  WEFT_ASSIGN_OR_RETURN(const int rank_b, RankForGradient(context, context.Input(1)));
  if (rank_a == 1 && rank_b == 1) return DotGradient(context, dy);
  if (rank_a == 1 || rank_b == 1) return VectorGradient(context, dy, rank_a == 1);
  GraphBuilder& g = context.builder();
  const ValueId a = context.Input(0);
  const ValueId b = context.Input(1);
  if (context.NeedsInputGradient(0)) {
    context.SetInputGradient(0, SumToLike(g, ProductGradientA(g, dy, b, false, false), a));
  }
  if (context.NeedsInputGradient(1)) {
    const ValueId db = rank_b == 2 ? g.WeftOp("MatMulReduceBatch", {a, dy})
                                   : SumToLike(g, ProductGradientB(g, dy, a, false, false), b);
    context.SetInputGradient(1, db);
  }
  return g.status();
}

absl::Status TransposingMatMulGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const bool trans_a = context.node().attributes.Int("transA", 0) != 0;
  const bool trans_b = context.node().attributes.Int("transB", 0) != 0;
  const ValueId a = context.Input(0);
  const ValueId b = context.Input(1);
  if (context.NeedsInputGradient(0)) {
    context.SetInputGradient(0, SumToLike(g, ProductGradientA(g, dy, b, trans_a, trans_b), a));
  }
  if (context.NeedsInputGradient(1)) {
    context.SetInputGradient(1, SumToLike(g, ProductGradientB(g, dy, a, trans_a, trans_b), b));
  }
  return g.status();
}

// Y[k, n] = sum over rows of A[row, k] B[row, n].
absl::Status MatMulReduceBatchGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  if (context.NeedsInputGradient(0)) {
    context.SetInputGradient(0,
                             g.WeftOp("MatMul", {context.Input(1), dy}, Transposed(false, true)));
  }
  if (context.NeedsInputGradient(1)) {
    context.SetInputGradient(1,
                             g.WeftOp("MatMul", {context.Input(0), dy}, Transposed(false, false)));
  }
  return g.status();
}

ValueId Scaled(GraphBuilder& g, ValueId value, float factor) {
  if (factor == 1.0f || !value.valid()) return value;
  return g.Op("Mul", {value, g.Scalar(g.type(value).dtype, factor)});
}

// Y = alpha op(A) op(B) + beta C.
absl::Status GemmGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const Attributes& attributes = context.node().attributes;
  const bool trans_a = attributes.Int("transA", 0) != 0;
  const bool trans_b = attributes.Int("transB", 0) != 0;
  const float alpha = attributes.Float("alpha", 1.0f);
  if (context.NeedsInputGradient(0)) {
    const ValueId da = ProductGradientA(g, dy, context.Input(1), trans_a, trans_b);
    context.SetInputGradient(0, Scaled(g, da, alpha));
  }
  if (context.NeedsInputGradient(1)) {
    const ValueId db = ProductGradientB(g, dy, context.Input(0), trans_a, trans_b);
    context.SetInputGradient(1, Scaled(g, db, alpha));
  }
  if (context.Input(2).valid() && context.NeedsInputGradient(2)) {
    const ValueId dc = SumToLike(g, dy, context.Input(2));
    context.SetInputGradient(2, Scaled(g, dc, attributes.Float("beta", 1.0f)));
  }
  return g.status();
}

// ---- Sharding rules.

// Factors of one operand: its batch axes, aligned right with `batch`, then `row` and `column` (-1
// for a vector, which lacks that axis).
std::vector<int> OperandDims(const Shape& shape, const std::vector<int>& batch, int row,
                             int column) {
  std::vector<int> dims;
  const int matrix_axes = (row >= 0) + (column >= 0);
  const int batch_axes = shape.rank() - matrix_axes;
  for (int i = 0; i < batch_axes; ++i) {
    const int axis = static_cast<int>(batch.size()) - batch_axes + i;
    dims.push_back(shape.dim(i) == 1 ? -1 : batch[axis]);
  }
  if (row >= 0) dims.push_back(row);
  if (column >= 0) dims.push_back(column);
  return dims;
}

absl::StatusOr<FactorRule> ProductRule(const NodeView& view, bool trans_a, bool trans_b) {
  const Shape& a = view.InputShape(0);
  const Shape& b = view.InputShape(1);
  const Shape& y = view.OutputShape(0);
  const bool row_vector = a.rank() == 1;
  const bool column_vector = b.rank() == 1;
  FactorRuleBuilder rule;
  std::vector<int> batch;
  const int batch_axes = y.rank() - (row_vector ? 0 : 1) - (column_vector ? 0 : 1);
  for (int i = 0; i < batch_axes; ++i) batch.push_back(rule.Factor(y.dim(i)));
  const int m = row_vector ? -1 : rule.Factor(a.dim(a.rank() - (trans_a ? 1 : 2)));
  const int k = rule.Factor(a.dim(a.rank() - (trans_a ? 2 : 1)), FactorKind::kSum);
  const int n = column_vector ? -1 : rule.Factor(b.dim(b.rank() - (trans_b ? 2 : 1)));
  rule.Input(trans_a ? OperandDims(a, batch, k, m) : OperandDims(a, batch, m, k));
  rule.Input(trans_b ? OperandDims(b, batch, n, k) : OperandDims(b, batch, k, n));
  rule.Output(OperandDims(y, batch, m, n));
  return rule.Linear({{0}, {1}}).Build();
}

absl::StatusOr<FactorRule> MatMulRule(const NodeView& view) {
  return ProductRule(view, false, false);
}

absl::StatusOr<FactorRule> TransposingMatMulRule(const NodeView& view) {
  return ProductRule(view, view.attributes().Int("transA", 0) != 0,
                     view.attributes().Int("transB", 0) != 0);
}

absl::StatusOr<FactorRule> MatMulReduceBatchRule(const NodeView& view) {
  const Shape& a = view.InputShape(0);
  FactorRuleBuilder rule;
  std::vector<int> dims;
  for (int i = 0; i + 1 < a.rank(); ++i) dims.push_back(rule.Factor(a.dim(i), FactorKind::kSum));
  const int k = rule.Factor(a.dims().back());
  const int n = rule.Factor(view.InputShape(1).dims().back());
  std::vector<int> a_dims = dims;
  a_dims.push_back(k);
  dims.push_back(n);
  rule.Input(a_dims).Input(dims).Output({k, n});
  return rule.Linear({{0}, {1}}).Build();
}

// With C present, k cannot be split: every shard would add C. (Expand takes the addition apart.)
absl::StatusOr<FactorRule> GemmRule(const NodeView& view) {
  const bool trans_a = view.attributes().Int("transA", 0) != 0;
  const bool trans_b = view.attributes().Int("transB", 0) != 0;
  const bool has_bias = view.HasInput(2);
  const Shape& a = view.InputShape(0);
  FactorRuleBuilder rule;
  const int m = rule.Factor(view.OutputShape(0).dim(0));
  const int n = rule.Factor(view.OutputShape(0).dim(1));
  const int k =
      rule.Factor(a.dim(trans_a ? 0 : 1), has_bias ? FactorKind::kWhole : FactorKind::kSum);
  rule.Input(trans_a ? std::vector<int>{k, m} : std::vector<int>{m, k});
  rule.Input(trans_b ? std::vector<int>{n, k} : std::vector<int>{k, n});
  if (view.num_inputs() > 2) {
    const Shape& c = view.InputShape(2);
    std::vector<int> dims;
    if (has_bias && c.rank() == 2) dims.push_back(c.dim(0) == 1 ? -1 : m);
    if (has_bias && c.rank() >= 1) dims.push_back(c.dims().back() == 1 ? -1 : n);
    rule.Input(dims);
  }
  rule.Output({m, n});
  if (has_bias) return rule.Linear({{0, 2}, {1, 2}}).Build();
  return rule.Linear({{0}, {1}}).Build();
}

// ---- Costs and expansion.

// Two per multiplication and addition of the contracted axes' size.
Cost ProductCost(const NodeView& view, double contracted) {
  return {2.0 * static_cast<double>(view.OutputShape(0).num_elements()) * contracted,
          OperandBytes(view)};
}

double ContractedSize(const NodeView& view, bool trans_a) {
  const Shape& a = view.InputShape(0);
  return static_cast<double>(a.dim(a.rank() - (trans_a ? 2 : 1)));
}

Cost MatMulCost(const NodeView& view) { return ProductCost(view, ContractedSize(view, false)); }

Cost TransposingProductCost(const NodeView& view) {
  return ProductCost(view, ContractedSize(view, view.attributes().Int("transA", 0) != 0));
}

Cost MatMulReduceBatchCost(const NodeView& view) {
  const Shape& a = view.InputShape(0);
  return ProductCost(view, static_cast<double>(a.ProductOf(0, a.rank() - 1)));
}

// The product and the addition of C as nodes of their own, so that the product may be split along
// k.
absl::StatusOr<std::vector<ValueId>> ExpandGemm(ExpandContext& context) {
  GraphBuilder& g = context.builder();
  const Node& node = context.node();
  const float alpha = node.attributes.Float("alpha", 1.0f);
  const float beta = node.attributes.Float("beta", 1.0f);
  if ((alpha != 1.0f || beta != 1.0f) && !IsFloatingPoint(g.type(node.inputs[0]).dtype)) {
    return absl::UnimplementedError(
        absl::StrCat("node '", node.name,
                     "': a Gemm of integers with alpha or beta other than one "
                     "cannot be taken apart"));
  }
  const bool trans_a = node.attributes.Int("transA", 0) != 0;
  const bool trans_b = node.attributes.Int("transB", 0) != 0;
  ValueId y = g.WeftOp("MatMul", {node.inputs[0], node.inputs[1]}, Transposed(trans_a, trans_b));
  y = Scaled(g, y, alpha);
  if (node.inputs.size() > 2 && node.inputs[2].valid()) {
    y = g.Op("Add", {y, Scaled(g, node.inputs[2], beta)});
  }
  WEFT_RETURN_IF_ERROR(g.status());
  return std::vector<ValueId>{y};
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("MatMul")
                     .Input("A", kProductTypes)
                     .Input("B", kProductTypes)
                     .Output("Y")
                     .Infer(InferMatMul)
                     .Gradient(MatMulGradient)
                     .Sharding(MatMulRule)
                     .CostOf(MatMulCost));

WEFT_REGISTER_OP(OpSchema::Onnx("Gemm")
                     .Input("A", kProductTypes)
                     .Input("B", kProductTypes)
                     .Learnable()
                     .OptionalInput("C", kProductTypes)
                     .Learnable()
                     .Output("Y")
                     .Attr("alpha", AttributeType::kFloat)
                     .Attr("beta", AttributeType::kFloat)
                     .Attr("transA", AttributeType::kInt)
                     .Attr("transB", AttributeType::kInt)
                     .Infer(InferGemm)
                     .Gradient(GemmGradient)
                     .Sharding(GemmRule)
                     .CostOf(TransposingProductCost)
                     .Expand(ExpandGemm));

WEFT_REGISTER_OP(OpSchema::Weft("MatMul")
                     .Input("A", kProductTypes)
                     .Input("B", kProductTypes)
                     .Output("Y")
                     .Attr("transA", AttributeType::kInt)
                     .Attr("transB", AttributeType::kInt)
                     .Infer(InferTransposingMatMul)
                     .Gradient(TransposingMatMulGradient)
                     .Sharding(TransposingMatMulRule)
                     .CostOf(TransposingProductCost));

WEFT_REGISTER_OP(OpSchema::Weft("MatMulReduceBatch")
                     .Input("A", kProductTypes)
                     .Input("B", kProductTypes)
                     .Output("Y")
                     .Infer(InferMatMulReduceBatch)
                     .Gradient(MatMulReduceBatchGradient)
                     .Sharding(MatMulReduceBatchRule)
                     .CostOf(MatMulReduceBatchCost));

}  // namespace weft
