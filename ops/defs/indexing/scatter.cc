// ScatterElements, ScatterND, GatherND, TensorScatter: elements and rows written to and read from
// the places that index tensors name; and ai.weft::GatherNdGrad.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status CheckReduction(const InferenceContext& context) {
  const std::string reduction = context.attributes().String("reduction", "none");
  const DType dtype = context.InputType(0).dtype;
  const bool numbers = dtype == DType::kInvalid ||
                       std::find(kRealTypes.begin(), kRealTypes.end(), dtype) != kRealTypes.end();
  if (reduction != "none" && !numbers) {
    return context.Error(absl::StrCat("reduction '", reduction, "' of ",
                                      std::string(DTypeName(dtype)), " elements is not defined"));
  }
  for (const char* known : {"none", "add", "mul", "max", "min"}) {
    if (reduction == known) return absl::OkStatus();
  }
  return context.Error(absl::StrCat("attribute reduction is '", reduction,
                                    "', expected none, add, mul, max or min"));
}

// ---- ScatterElements

absl::Status InferScatterElements(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckReduction(context));
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 2}));
  const SymbolicShape& data = context.InputShape(0);
  const SymbolicShape& indices = context.InputShape(1);
  const SymbolicShape& updates = context.InputShape(2);
  context.SetOutput(0, context.InputType(0).dtype, data);
  if (!data.has_rank() || !indices.has_rank() || !updates.has_rank()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        AxisOf(context, context.attributes().Int("axis", 0), data.rank()));
  bool fits = data.rank() == indices.rank() && updates.rank() == indices.rank();
  for (int d = 0; fits && d < data.rank(); ++d) {
    fits = MergeDims(indices.dim(d), updates.dim(d)).has_value();
    if (!fits || d == axis || !data.dim(d).is_known() || !indices.dim(d).is_known()) continue;
    fits = indices.dim(d).size() <= data.dim(d).size();
  }
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat("indices ", indices.ToString(), " and updates ",
                                    updates.ToString(), " do not fit data ", data.ToString(),
                                    ": expected equal shapes of the same rank and no axis longer, "
                                    "but for axis ",
                                    axis));
}

// A scatter and the gather that reads the same places.
struct ScatterPair {
  GradientContext& context;
  std::string gather;
  Attributes attributes;  // of both

  ValueId Gather(ValueId from) const {
    return context.builder().Op(gather, {from, context.Input(1)}, attributes);
  }
  ValueId Scatter(ValueId into, ValueId updates, const std::string& reduction) const {
    Attributes own = attributes;
    own.Set("reduction", reduction);
    return context.builder().Op(context.node().op, {into, context.Input(1), updates}, own);
  }
  void SetGradients(ValueId data, ValueId updates) const {
    if (context.NeedsInputGradient(0)) context.SetInputGradient(0, data);
    if (context.NeedsInputGradient(2)) context.SetInputGradient(2, updates);
  }
};

// What is written over has no part in the result.
void ReplacingGradient(const ScatterPair& pair, ValueId dy) {
  GraphBuilder& b = pair.context.builder();
  if (pair.context.NeedsInputGradient(0)) {
    const ValueId zeros = FilledLike(b, pair.context.Input(2), b.type(dy).dtype, 0);
    pair.context.SetInputGradient(0, pair.Scatter(dy, zeros, "none"));
  }
  if (pair.context.NeedsInputGradient(2)) pair.context.SetInputGradient(2, pair.Gather(dy));
}

// dy goes to those that are the result, in equal parts where several are.
void ExtremeGradient(const ScatterPair& pair, ValueId dy) {
  GraphBuilder& b = pair.context.builder();
  const DType dtype = b.type(dy).dtype;
  const ValueId y = pair.context.Output(0);
  const ValueId data = MaskOf(b, b.Op("Equal", {pair.context.Input(0), y}), dtype);
  const ValueId updates = MaskOf(b, b.Op("Equal", {pair.context.Input(2), pair.Gather(y)}), dtype);
  const ValueId share = b.Op("Div", {dy, pair.Scatter(data, updates, "add")});
  pair.SetGradients(b.Op("Mul", {share, data}), b.Op("Mul", {pair.Gather(share), updates}));
}

// dy times the product of the other factors, as in ReduceProd's gradient.
void ProductGradient(const ScatterPair& pair, ValueId dy) {
  GraphBuilder& b = pair.context.builder();
  const Algebra a(b, dy);
  const ValueId factors[] = {pair.context.Input(0), pair.context.Input(2)};
  ValueId zero[2];
  ValueId safe[2];
  for (int i = 0; i < 2; ++i) {
    const ValueId is_zero = b.Op("Equal", {factors[i], a.Number(0)});
    zero[i] = MaskOf(b, is_zero, b.type(dy).dtype);
    safe[i] = a.Where(is_zero, a.Number(1), factors[i]);
  }
  const ValueId zeros = pair.Scatter(zero[0], zero[1], "add");
  const ValueId share = a.Mul(dy, pair.Scatter(safe[0], safe[1], "mul"));
  const auto gradient = [&](int i, ValueId own_zeros, ValueId own_share) {
    return a.Where(b.Op("Equal", {zero[i], own_zeros}), a.Div(own_share, safe[i]), a.Number(0));
  };
  pair.SetGradients(gradient(0, zeros, share), gradient(1, pair.Gather(zeros), pair.Gather(share)));
}

absl::Status ScatterGradient(GradientContext& context, const std::string& gather,
                             const Attributes& attributes) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  const ScatterPair pair{context, gather, attributes};
  const std::string reduction = context.node().attributes.String("reduction", "none");
  if (reduction == "none") {
    ReplacingGradient(pair, dy);
  } else if (reduction == "add") {
    pair.SetGradients(dy, pair.Gather(dy));
  } else if (reduction == "mul") {
    ProductGradient(pair, dy);
  } else {
    ExtremeGradient(pair, dy);
  }
  return context.builder().status();
}

absl::Status ScatterElementsGradient(GradientContext& context) {
  return ScatterGradient(context, "GatherElements",
                         {{"axis", context.node().attributes.Int("axis", 0)}});
}

// What is written or added is linear in what it is written into and what is written together.
std::vector<std::vector<int>> LinearScatter(const NodeView& view) {
  const std::string reduction = view.attributes().String("reduction", "none");
  if (reduction != "none" && reduction != "add") return {};
  return {{0, 2}};
}

// Axes beside the indexed one along which every element of the data has an index are parallel.
absl::StatusOr<FactorRule> ScatterElementsRule(const NodeView& view) {
  const Shape& data = view.InputShape(0);
  const Shape& indices = view.InputShape(1);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(view.attributes().Int("axis", 0), data.rank()));
  FactorRuleBuilder rule;
  std::vector<int> data_factors;
  std::vector<int> index_factors;
  for (int d = 0; d < data.rank(); ++d) {
    const bool shared = d != axis && data.dim(d) == indices.dim(d);
    data_factors.push_back(
        rule.Factor(data.dim(d), shared ? FactorKind::kParallel : FactorKind::kWhole));
    index_factors.push_back(shared ? data_factors.back()
                                   : rule.Factor(indices.dim(d), FactorKind::kWhole));
  }
  rule.Input(data_factors).Input(index_factors).Input(index_factors).Output(data_factors);
  return rule.Linear(LinearScatter(view)).Build();
}

WEFT_REGISTER_OP(OpSchema::Onnx("ScatterElements")
                     .Input("data")
                     .Input("indices", kIndexTypes)
                     .Input("updates")
                     .Output("output")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("reduction", AttributeType::kString)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferScatterElements)
                     .Gradient(ScatterElementsGradient)
                     .Sharding(ScatterElementsRule)
                     .CostOf(MovementCost)
                     .InPlace(0, 0));

// ---- GatherND, ScatterND

// How many axes of the data a tuple of the indices names; -1 while that is not known.
absl::StatusOr<int> TupleDepth(InferenceContext& context, const SymbolicShape& data,
                               const SymbolicShape& indices, int batch_dims) {
  if (!indices.has_rank() || !data.has_rank()) return -1;
  if (indices.rank() < 1 || data.rank() < 1) {
    return context.Error(absl::StrCat("data ", data.ToString(), " and indices ", indices.ToString(),
                                      " must have at least one axis"));
  }
  const Dim& last = indices.dim(indices.rank() - 1);
  if (!last.is_known()) return -1;
  const bool batches = batch_dims >= 0 && batch_dims < std::min(data.rank(), indices.rank());
  if (batches && last.size() <= data.rank() - batch_dims) return static_cast<int>(last.size());
  return context.Error(absl::StrCat("the tuples of indices ", indices.ToString(),
                                    " (the last axis) index more axes than data ", data.ToString(),
                                    " has after ", batch_dims, " batch axes"));
}

// Sets the shape of rows gathered from, or put into, `data`.
absl::StatusOr<SymbolicShape> RowsShape(InferenceContext& context, const SymbolicShape& data,
                                        const SymbolicShape& indices, int batch_dims) {
  WEFT_ASSIGN_OR_RETURN(const int depth, TupleDepth(context, data, indices, batch_dims));
  if (depth < 0) return SymbolicShape();
  Dims dims(indices.dims().begin(), indices.dims().end() - 1);
  for (int d = 0; d < batch_dims; ++d) {
    const std::optional<Dim> merged = MergeDims(data.dim(d), indices.dim(d));
    if (!merged.has_value()) {
      return context.Error(absl::StrCat("batch axis ", d, " differs between data ", data.ToString(),
                                        " and indices ", indices.ToString()));
    }
    dims[d] = *merged;
  }
  dims.insert(dims.end(), data.dims().begin() + batch_dims + depth, data.dims().end());
  return SymbolicShape(std::move(dims));
}

absl::Status InferGatherNd(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const int batch_dims = static_cast<int>(context.attributes().Int("batch_dims", 0));
  WEFT_ASSIGN_OR_RETURN(const SymbolicShape rows, RowsShape(context, context.InputShape(0),
                                                            context.InputShape(1), batch_dims));
  if (!rows.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  return SetCheckedOutput(context, dtype, rows.dims());
}

absl::Status GatherNdGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  context.SetInputGradient(
      0, b.WeftOp("GatherNdGrad", {dy, context.Input(1), ShapeOf(b, context.Input(0))},
                  {{"batch_dims", context.node().attributes.Int("batch_dims", 0)}}));
  return b.status();
}

absl::Status InferGatherNdGrad(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> dims, TargetDims(context, 2));
  if (!dims.has_value()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  const int batch_dims = static_cast<int>(context.attributes().Int("batch_dims", 0));
  WEFT_RETURN_IF_ERROR(
      RowsShape(context, SymbolicShape(*dims), context.InputShape(1), batch_dims).status());
  return SetCheckedOutput(context, dtype, *dims);
}

absl::Status InferScatterNd(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckReduction(context));
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 2}));
  const SymbolicShape& data = context.InputShape(0);
  const SymbolicShape& updates = context.InputShape(2);
  context.SetOutput(0, context.InputType(0).dtype, data);
  WEFT_ASSIGN_OR_RETURN(const SymbolicShape rows,
                        RowsShape(context, data, context.InputShape(1), 0));
  if (!rows.has_rank() || !updates.has_rank()) return absl::OkStatus();
  bool fits = rows.rank() == updates.rank();
  for (int d = 0; fits && d < rows.rank(); ++d) {
    fits = MergeDims(rows.dim(d), updates.dim(d)).has_value();
  }
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat(
      "updates ", updates.ToString(), " do not fit data ", data.ToString(), " and indices ",
      context.InputShape(1).ToString(), ", expected ", rows.ToString()));
}

// Data[batch, indexed, rest], indices[batch, places, tuple] and the rows[batch, places, rest] that
// they name.
struct RowFactors {
  std::vector<int> data;
  std::vector<int> indices;
  std::vector<int> rows;

  RowFactors(FactorRuleBuilder& rule, const Shape& data_shape, const Shape& index_shape,
             int batch_dims, FactorKind places) {
    const int depth = static_cast<int>(index_shape.dims().back());
    for (int d = 0; d < batch_dims; ++d) {
      data.push_back(rule.Factor(data_shape.dim(d)));
      indices.push_back(data.back());
    }
    for (int d = batch_dims; d + 1 < index_shape.rank(); ++d) {
      indices.push_back(rule.Factor(index_shape.dim(d), places));
    }
    rows = indices;
    indices.push_back(rule.Factor(depth, FactorKind::kWhole));
    for (int d = batch_dims; d < batch_dims + depth; ++d) {
      data.push_back(rule.Factor(data_shape.dim(d), FactorKind::kWhole));
    }
    for (int d = batch_dims + depth; d < data_shape.rank(); ++d) {
      data.push_back(rule.Factor(data_shape.dim(d)));
      rows.push_back(data.back());
    }
  }
};

int BatchDims(const NodeView& view) {
  return static_cast<int>(view.attributes().Int("batch_dims", 0));
}

absl::StatusOr<FactorRule> GatherNdRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const RowFactors factors(rule, view.InputShape(0), view.InputShape(1), BatchDims(view),
                           FactorKind::kParallel);
  rule.Input(factors.data).Input(factors.indices).Output(factors.rows);
  return rule.Linear({{0}}).Build();
}

// Rows of several ranks add up: their places are summed over.
absl::StatusOr<FactorRule> GatherNdGradRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const RowFactors factors(rule, view.OutputShape(0), view.InputShape(1), BatchDims(view),
                           FactorKind::kSum);
  rule.Input(factors.rows).Input(factors.indices).ShapeInput(view.InputShape(2));
  return rule.Output(factors.data).Linear({{0}}).Build();
}

absl::Status LocalizeGatherNdGrad(LocalizeContext& context) {
  context.SetConstantInput(2, IntsTensor(DimsOf(context.LocalOutputShape(0))));
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> ScatterNdRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const RowFactors factors(rule, view.InputShape(0), view.InputShape(1), 0, FactorKind::kWhole);
  rule.Input(factors.data).Input(factors.indices).Input(factors.rows).Output(factors.data);
  return rule.Linear(LinearScatter(view)).Build();
}

WEFT_REGISTER_OP(OpSchema::Onnx("GatherND")
                     .Input("data")
                     .Input("indices", {DType::kInt64})
                     .Output("output")
                     .Attr("batch_dims", AttributeType::kInt)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferGatherNd)
                     .Gradient(GatherNdGradient)
                     .Sharding(GatherNdRule)
                     .CostOf(MovementCost));

// ddata of GatherND(data, indices): zeros of `shape`, to which the rows of dy are added in the
// order of the indices.
WEFT_REGISTER_OP(OpSchema::Weft("GatherNdGrad")
                     .Input("dy", kFloatTypes)
                     .Input("indices", {DType::kInt64})
                     .Input("shape", {DType::kInt64})
                     .Output("ddata")
                     .Attr("batch_dims", AttributeType::kInt)
                     .Infer(InferGatherNdGrad)
                     .NoGradient("part of a gradient")
                     .Sharding(GatherNdGradRule)
                     .Localize(LocalizeGatherNdGrad)
                     .CostOf(FlopsPerElement(1))
                     .ValueInputs({2}));

WEFT_REGISTER_OP(OpSchema::Onnx("ScatterND")
                     .Input("data")
                     .Input("indices", {DType::kInt64})
                     .Input("updates")
                     .Output("output")
                     .Attr("reduction", AttributeType::kString)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferScatterNd)
                     .Gradient([](GradientContext& context) {
                       return ScatterGradient(context, "GatherND", {});
                     })
                     .Sharding(ScatterNdRule)
                     .CostOf(MovementCost)
                     .InPlace(0, 0));

// ---- TensorScatter

absl::Status CheckCache(InferenceContext& context, const SymbolicShape& cache,
                        const SymbolicShape& update) {
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        AxisOf(context, context.attributes().Int("axis", -2), cache.rank()));
  if (axis == 0) return context.Error("axis 0 is the batch, expected the axis of the sequence");
  bool fits = cache.rank() == update.rank();
  for (int d = 0; fits && d < cache.rank(); ++d) {
    const Dim& whole = cache.dim(d);
    const Dim& part = update.dim(d);
    if (!whole.is_known() || !part.is_known()) continue;
    fits = d == axis ? part.size() <= whole.size() : part.size() == whole.size();
  }
  if (fits && context.HasInput(2) && context.InputShape(2).has_rank()) {
    const SymbolicShape& starts = context.InputShape(2);
    fits = starts.rank() == 1 && MergeDims(starts.dim(0), cache.dim(0)).has_value();
  }
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat("the update ", update.ToString(), " does not fit the cache ",
                                    cache.ToString(), ": expected the same shape, axis ", axis,
                                    " not longer, and one write index per sample"));
}

absl::Status InferTensorScatter(InferenceContext& context) {
  const std::string mode = context.attributes().String("mode", "linear");
  if (mode != "linear" && mode != "circular") {
    return context.Error(
        absl::StrCat("attribute mode is '", mode, "', expected linear or circular"));
  }
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  const SymbolicShape& cache = context.InputShape(0);
  context.SetOutput(0, context.InputType(0).dtype, cache);
  if (!cache.has_rank() || !context.InputShape(1).has_rank()) return absl::OkStatus();
  return CheckCache(context, cache, context.InputShape(1));
}

// The places along the axis that the update was written to, [batch, 1..., length, 1...]: the write
// index of the sample (0 without one) and on, round the end of the cache in mode circular.
ValueId WrittenPlaces(GradientContext& context, int rank, int axis) {
  GraphBuilder& b = context.builder();
  std::vector<int64_t> shape(rank, 1);
  shape[axis] = -1;
  const ValueId steps = PositionsBelow(b, DimOf(b, context.Input(1), axis));
  ValueId places = b.Op("Reshape", {steps, b.Ints(shape)});
  if (context.Input(2).valid()) {
    shape[axis] = 1;
    shape[0] = -1;
    places = b.Op("Add", {b.Op("Reshape", {context.Input(2), b.Ints(shape)}), places});
  }
  if (context.node().attributes.String("mode", "linear") == "circular") {
    places = b.Op("Mod", {places, DimOf(b, context.Input(0), axis)});
  }
  return places;
}

absl::Status TensorScatterGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const ValueId update = context.Input(1);
  if (context.NeedsInputGradient(0)) {
    std::vector<ValueId> inputs = {dy, FilledLike(b, update, b.type(dy).dtype, 0)};
    if (context.Input(2).valid()) inputs.push_back(context.Input(2));
    context.SetInputGradient(0, b.Op("TensorScatter", inputs, context.node().attributes));
  }
  if (!context.NeedsInputGradient(1)) return b.status();
  WEFT_ASSIGN_OR_RETURN(const int rank, RankForGradient(context, update));
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.node().attributes.Int("axis", -2), rank));
  const ValueId places = b.Op("Expand", {WrittenPlaces(context, rank, axis), ShapeOf(b, update)});
  context.SetInputGradient(
      1, b.Op("GatherElements", {dy, places}, {{"axis", static_cast<int64_t>(axis)}}));
  return b.status();
}

WEFT_REGISTER_OP(OpSchema::Onnx("TensorScatter")
                     .Input("past_cache")
                     .Input("update")
                     .OptionalInput("write_indices", {DType::kInt64})
                     .Output("present_cache")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("mode", AttributeType::kString)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferTensorScatter)
                     .Gradient(TensorScatterGradient)
                     .CostOf(MovementCost)
                     .InPlace(0, 0));

}  // namespace
}  // namespace weft
