// Gather and ai.weft::GatherGrad, which adds rows back where they came from (an embedding's
// gradient).
#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Gathering along the only axis of a list of dimensions (shape arithmetic): hands on those chosen.
absl::Status GatherElements(InferenceContext& context) {
  const std::optional<Dims> elements = context.InputDims(0);
  const SymbolicShape& indices_shape = context.InputShape(1);
  if (!elements.has_value() || !indices_shape.has_rank() || indices_shape.rank() > 1) {
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const auto indices, KnownInts(context, 1));
  if (!indices.has_value()) return absl::OkStatus();
  const int64_t size = static_cast<int64_t>(elements->size());
  Dims chosen;
  for (const int64_t index : *indices) {
    if (index < -size || index >= size) {
      return context.Error(absl::StrCat("index ", index, " is outside [", -size, ", ", size,
                                        ") of the axis to gather from"));
    }
    chosen.push_back((*elements)[index < 0 ? index + size : index]);
  }
  context.SetOutputDims(0, std::move(chosen));
  return absl::OkStatus();
}

absl::Status InferGather(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& data = context.InputShape(0);
  const SymbolicShape& indices = context.InputShape(1);
  if (!data.has_rank() || !indices.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        AxisOf(context, context.attributes().Int("axis", 0), data.rank()));
  Dims dims(data.dims().begin(), data.dims().begin() + axis);
  dims.insert(dims.end(), indices.dims().begin(), indices.dims().end());
  dims.insert(dims.end(), data.dims().begin() + axis + 1, data.dims().end());
  WEFT_RETURN_IF_ERROR(SetCheckedOutput(context, dtype, std::move(dims)));
  return data.rank() == 1 ? GatherElements(context) : absl::OkStatus();
}

absl::Status InferGatherGrad(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> dims, TargetDims(context, 2));
  if (!dims.has_value()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(
      AxisOf(context, context.attributes().Int("axis", 0), static_cast<int>(dims->size()))
          .status());
  return SetCheckedOutput(context, dtype, *dims);
}

absl::Status GatherGradient(GradientContext& context) {
  GraphBuilder& builder = context.builder();
  const ValueId shape = builder.Op("Shape", {context.Input(0)});
  context.SetInputGradient(
      0, builder.WeftOp("GatherGrad", {context.OutputGradient(0), context.Input(1), shape},
                        {{"axis", context.node().attributes.Int("axis", 0)}}));
  return builder.status();
}

absl::Status GatherGradGradient(GradientContext& context) {
  GraphBuilder& builder = context.builder();
  context.SetInputGradient(0, builder.Op("Gather", {context.OutputGradient(0), context.Input(1)},
                                         {{"axis", context.node().attributes.Int("axis", 0)}}));
  return builder.status();
}

// The factors of a table, the indices and the rows gathered from it: all dimensions of the indices
// are of kind `indices_kind`, the table's own are parallel, but for the axis that is indexed.
void AppendGatherFactors(const Shape& table, const Shape& indices, int axis,
                         FactorKind indices_kind, FactorRule& rule, OperandFactors& table_factors,
                         OperandFactors& indices_factors, OperandFactors& row_factors) {
  int row_axis = 0;
  for (int a = 0; a < table.rank(); ++a) {
    if (a != axis) {
      const int shared = AddFactor(rule, table.dim(a), FactorKind::kParallel);
      table_factors.dims[a] = {shared};
      row_factors.dims[row_axis++] = {shared};
      continue;
    }
    table_factors.dims[a] = {AddFactor(rule, table.dim(a), FactorKind::kWhole)};
    for (int i = 0; i < indices.rank(); ++i) {
      const int shared = AddFactor(rule, indices.dim(i), indices_kind);
      indices_factors.dims[i] = {shared};
      row_factors.dims[row_axis++] = {shared};
    }
  }
}

absl::StatusOr<FactorRule> GatherRule(const NodeView& view) {
  FactorRule rule = EmptyRule(view);
  const Shape& table = view.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(view.attributes().Int("axis", 0), table.rank()));
  AppendGatherFactors(table, view.InputShape(1), axis, FactorKind::kParallel, rule, rule.inputs[0],
                      rule.inputs[1], rule.outputs[0]);
  rule.linear = {{0}};
  return rule;
}

// Rows of several ranks add up: the indices' dimensions are summed over.
absl::StatusOr<FactorRule> GatherGradRule(const NodeView& view) {
  FactorRule rule = EmptyRule(view);
  const Shape& table = view.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(view.attributes().Int("axis", 0), table.rank()));
  AppendGatherFactors(table, view.InputShape(1), axis, FactorKind::kSum, rule, rule.outputs[0],
                      rule.inputs[1], rule.inputs[0]);
  AddShapeInputs(view, 2, rule);
  rule.linear = {{0}};
  return rule;
}

absl::Status LocalizeGatherGrad(LocalizeContext& context) {
  context.SetConstantInput(2, IntsTensor(DimsOf(context.LocalOutputShape(0))));
  return absl::OkStatus();
}

Cost GatherGradCost(const NodeView& view) {
  Cost cost;
  cost.flops = static_cast<double>(view.InputShape(0).num_elements());
  cost.bytes = OperandBytes(view);
  return cost;
}

WEFT_REGISTER_OP(OpSchema::Onnx("Gather")
                     .Input("data")
                     .Learnable()
                     .Input("indices", kIndexTypes)
                     .Output("output")
                     .Attr("axis", AttributeType::kInt)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferGather)
                     .Gradient(GatherGradient)
                     .Sharding(GatherRule)
                     .CostOf(MovementCost));

// ddata of Gather(data, indices): zeros of `shape`, to which the rows of dy are added in the order
// of the indices, so that the sums have the same bits every time.
WEFT_REGISTER_OP(OpSchema::Weft("GatherGrad")
                     .Input("dy")
                     .Input("indices", kIndexTypes)
                     .Input("shape", {DType::kInt64})
                     .Output("ddata")
                     .Attr("axis", AttributeType::kInt)
                     .Infer(InferGatherGrad)
                     .Gradient(GatherGradGradient)
                     .Sharding(GatherGradRule)
                     .Localize(LocalizeGatherGrad)
                     .CostOf(GatherGradCost)
                     .ValueInputs({2}));

}  // namespace
}  // namespace weft
