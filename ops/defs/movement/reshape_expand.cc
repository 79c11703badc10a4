// Expand and Tile: the same elements several times over.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// ---- Expand

absl::Status InferExpand(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& input = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> target, TargetDims(context, 1));
  if (!target.has_value() || !input.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  const int rank = std::max(input.rank(), static_cast<int>(target->size()));
  Dims dims;
  for (int axis = 0; axis < rank; ++axis) {
    const int from = axis - (rank - input.rank());
    const int to = axis - (rank - static_cast<int>(target->size()));
    const std::optional<Dim> dim =
        BroadcastDims(from < 0 ? Dim(1) : input.dim(from), to < 0 ? Dim(1) : (*target)[to]);
    if (!dim.has_value()) {
      return context.Error(absl::StrCat("cannot expand ", input.ToString(), " to ",
                                        DimsToString(*target),
                                        ": sizes must be equal, or one of them 1"));
    }
    dims.push_back(*dim);
  }
  return SetCheckedOutput(context, dtype, std::move(dims));
}

absl::Status ExpandGradient(GradientContext& context) {
  GraphBuilder& builder = context.builder();
  const ValueId shape = builder.Op("Shape", {context.Input(0)});
  context.SetInputGradient(0, builder.WeftOp("SumToShape", {context.OutputGradient(0), shape}));
  return builder.status();
}

absl::StatusOr<FactorRule> ExpandRule(const NodeView& view) {
  FactorRule rule = EmptyRule(view);
  const Shape& input = view.InputShape(0);
  const Shape& output = view.OutputShape(0);
  for (int axis = 0; axis < output.rank(); ++axis) {
    const int factor = AddFactor(rule, output.dim(axis), FactorKind::kParallel);
    rule.outputs[0].dims[axis] = {factor};
    const int from = axis - (output.rank() - input.rank());
    if (from >= 0 && input.dim(from) == output.dim(axis)) rule.inputs[0].dims[from] = {factor};
  }
  AddShapeInputs(view, 1, rule);
  rule.linear = {{0}};
  return rule;
}

absl::Status LocalizeExpand(LocalizeContext& context) {
  context.SetConstantInput(1, IntsTensor(DimsOf(context.LocalOutputShape(0))));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Expand")
                     .Input("input")
                     .Input("shape", {DType::kInt64})
                     .NeverLearnable()
                     .Output("output")
                     .Elements(ElementUse::kMoves)
                     .Infer(InferExpand)
                     .Gradient(ExpandGradient)
                     .Sharding(ExpandRule)
                     .Localize(LocalizeExpand)
                     .CostOf(MovementCost)
                     .ValueInputs({1}));

// ---- Tile

absl::Status InferTile(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> repeats, TargetDims(context, 1));
  if (!repeats.has_value()) {
    return SetCheckedOutput(context, dtype, UnknownDims(input.rank()));
  }
  if (static_cast<int>(repeats->size()) != input.rank()) {
    return context.Error(absl::StrCat("input repeats has ", repeats->size(),
                                      " elements; it must have one for each axis of ",
                                      input.ToString()));
  }
  Dims dims;
  for (int axis = 0; axis < input.rank(); ++axis) {
    const Dim& times = (*repeats)[axis];
    const Dim& size = input.dim(axis);
    if (times.is_known() && size.is_known() && size.size() > 0 &&
        times.size() > kMaxDim / size.size()) {
      return context.Error(absl::StrCat("input repeats asks for axis ", axis, " of size ",
                                        size.size(), " ", times.size(),
                                        " times; a dimension can be 2^40 at most"));
    }
    dims.push_back(ProductOfDims({times, size}, 0, 2));
  }
  return SetCheckedOutput(context, dtype, std::move(dims));
}

// Seen as (repeats size), each axis becomes two in y; the sum over the first ones is dx.
absl::Status TileGradient(GradientContext& context) {
  GraphBuilder& builder = context.builder();
  const SymbolicShape& input = builder.type(context.Input(0)).shape;
  if (!input.has_rank()) {
    return absl::UnimplementedError(
        absl::StrCat("node '", context.node().name,
                     "' (Tile): the gradient needs the rank of the input, which is not known"));
  }
  std::vector<ValueId> pairs;
  std::vector<int64_t> summed;
  for (int64_t axis = 0; axis < input.rank(); ++axis) {
    pairs.push_back(
        builder.Op("Slice", {context.Input(1), builder.Ints({axis}), builder.Ints({axis + 1})}));
    pairs.push_back(builder.Op("Shape", {context.Input(0)}, {{"start", axis}, {"end", axis + 1}}));
    summed.push_back(2 * axis);
  }
  if (pairs.empty()) {
    context.SetInputGradient(0, context.OutputGradient(0));
    return builder.status();
  }
  const ValueId split_axes = builder.Op(
      "Reshape", {context.OutputGradient(0), builder.Op("Concat", pairs, {{"axis", int64_t{0}}})},
      {{"allowzero", int64_t{1}}});
  context.SetInputGradient(
      0, builder.Op("ReduceSum", {split_axes, builder.Ints(summed)}, {{"keepdims", int64_t{0}}}));
  return builder.status();
}

absl::StatusOr<FactorRule> TileRule(const NodeView& view) {
  FactorRule rule = EmptyRule(view);
  const Shape& input = view.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> repeats, RequiredInts(view, 1));
  for (int axis = 0; axis < input.rank(); ++axis) {
    const int shared = AddFactor(rule, input.dim(axis), FactorKind::kParallel);
    rule.inputs[0].dims[axis] = {shared};
    rule.outputs[0].dims[axis] = {AddFactor(rule, repeats[axis], FactorKind::kWhole), shared};
  }
  AddShapeInputs(view, 1, rule);
  rule.linear = {{0}};
  return rule;
}

WEFT_REGISTER_OP(OpSchema::Onnx("Tile")
                     .Input("input")
                     .Input("repeats", {DType::kInt64})
                     .NeverLearnable()
                     .Output("output")
                     .Elements(ElementUse::kMoves)
                     .Infer(InferTile)
                     .Gradient(TileGradient)
                     .Sharding(TileRule)
                     .CostOf(MovementCost)
                     .ValueInputs({1}));

}  // namespace
}  // namespace weft
