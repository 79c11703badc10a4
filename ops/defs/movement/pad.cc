// Pad and CenterCropPad.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/movement/pad_widths.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::StatusOr<Dim> PaddedDim(const Dim& dim, const PadWidth& width) {
  if (width.begin + width.end == 0) return dim;
  if (!dim.is_known()) return Dim();
  WEFT_ASSIGN_OR_RETURN(const int64_t size, PaddedSize(dim.size(), width));
  return Dim(size);
}

absl::Status InferPad(InferenceContext& context) {
  if (context.HasInput(2)) WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 2}));
  const absl::StatusOr<PadMode> mode =
      ParsePadMode(context.attributes().String("mode", "constant"));
  if (!mode.ok()) return context.Error(std::string(mode.status().message()));
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& x = context.InputShape(0);
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const auto pads, KnownInts(context, 1));
  WEFT_ASSIGN_OR_RETURN(const auto axes, KnownInts(context, 3));
  if (!pads.has_value() || (context.HasInput(3) && !axes.has_value())) {
    context.SetOutput(0, dtype, SymbolicShape(UnknownDims(x.rank())));
    return absl::OkStatus();
  }
  const auto widths = ReadPadWidths(x.rank(), *pads, axes);
  if (!widths.ok()) return context.Error(std::string(widths.status().message()));
  Dims dims;
  for (int i = 0; i < x.rank(); ++i) {
    absl::StatusOr<Dim> dim = PaddedDim(x.dim(i), (*widths)[i]);
    if (!dim.ok()) return context.Error(std::string(dim.status().message()));
    dims.push_back(*std::move(dim));
  }
  return SetCheckedOutput(context, dtype, std::move(dims));
}

// The pads of the rule's node, an element of the vector at a time.
ValueId PadOf(GraphBuilder& g, ValueId pads, int64_t i) {
  return g.Op("Slice", {pads, g.Ints({i}), g.Ints({i + 1})});
}

// What the pads are, when they are constants.
std::optional<std::vector<int64_t>> ConstantPads(const GradientContext& context) {
  const ValueDef& pads = context.graph().value(context.Input(1));
  if (pads.source != ValueSource::kConstant) return std::nullopt;
  absl::StatusOr<std::vector<int64_t>> values = ToInt64s(pads.constant);
  if (!values.ok()) return std::nullopt;
  return *std::move(values);
}

// The axes that are padded, in the order of the pads.
absl::StatusOr<std::vector<int>> PaddedAxes(const GradientContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int rank, RankForGradient(context, context.Input(0)));
  std::vector<int> axes;
  if (!context.Input(3).valid()) {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
    return axes;
  }
  const ValueDef& given = context.graph().value(context.Input(3));
  if (given.source != ValueSource::kConstant) {
    return absl::UnimplementedError(absl::StrCat("node '", context.node().name,
                                                 "': the gradient of Pad needs the axes ('",
                                                 given.name, "') as a constant"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> values, ToInt64s(given.constant));
  for (const int64_t value : values) {
    WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(value, rank));
    axes.push_back(axis);
  }
  return axes;
}

// Elements that were repeated (reflect, edge, wrap) sum up what their copies got: along each axis
// dy is added back to the positions that the mode makes of 0, 1, 2, ...
absl::StatusOr<ValueId> RepeatingPadGradient(GradientContext& context, ValueId dy) {
  GraphBuilder& g = context.builder();
  const ValueId x = context.Input(0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<int> axes, PaddedAxes(context));
  WEFT_ASSIGN_OR_RETURN(const int rank, RankForGradient(context, x));
  const std::optional<std::vector<int64_t>> pads = ConstantPads(context);
  const int64_t count = static_cast<int64_t>(axes.size());
  std::vector<ValueId> shape;
  for (int i = 0; i < rank; ++i) shape.push_back(DimOf(g, dy, i));
  ValueId gradient = dy;
  for (int64_t i = 0; i < count; ++i) {
    if (pads.has_value() && (*pads)[i] == 0 && (*pads)[count + i] == 0) continue;
    const int axis = axes[i];
    shape[axis] = DimOf(g, x, axis);
    const ValueId width =
        g.Op("Concat", {PadOf(g, context.Input(1), i), PadOf(g, context.Input(1), count + i)},
             {{"axis", int64_t{0}}});
    const ValueId positions =
        g.Op("Pad", {PositionsBelow(g, shape[axis]), width},
             {{"mode", context.node().attributes.String("mode", "constant")}});
    gradient =
        g.WeftOp("GatherGrad", {gradient, positions, g.Op("Concat", shape, {{"axis", int64_t{0}}})},
                 {{"axis", static_cast<int64_t>(axis)}});
  }
  return gradient;
}

// What was added is taken away again; the constant gets the sum of it.
absl::Status ConstantPadGradient(GradientContext& context, ValueId dy) {
  GraphBuilder& g = context.builder();
  std::vector<ValueId> inputs = {dy, g.Op("Neg", {context.Input(1)})};
  if (context.Input(3).valid()) {
    inputs.push_back(kNoValue);
    inputs.push_back(context.Input(3));
  }
  if (context.NeedsInputGradient(0)) context.SetInputGradient(0, g.Op("Pad", inputs));
  if (!context.Input(2).valid() || !context.NeedsInputGradient(2)) return g.status();
  const DType dtype = g.type(dy).dtype;
  inputs[0] = FilledLike(g, context.Input(0), dtype, 0);
  inputs[1] = context.Input(1);
  inputs.resize(std::max<size_t>(inputs.size(), 3));
  inputs[2] = g.Scalar(dtype, 1);
  const ValueId added = g.Op("Mul", {dy, g.Op("Pad", inputs)});
  const ValueId sum = g.Op("ReduceSum", {added}, {{"keepdims", int64_t{0}}});
  context.SetInputGradient(2, g.Op("Reshape", {sum, ShapeOf(g, context.Input(2))}));
  return g.status();
}

absl::Status PadGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  if (context.node().attributes.String("mode", "constant") == "constant") {
    return ConstantPadGradient(context, dy);
  }
  if (!context.NeedsInputGradient(0)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const ValueId dx, RepeatingPadGradient(context, dy));
  context.SetInputGradient(0, dx);
  return context.builder().status();
}

// Cropping is undone by padding, padding by cropping, each about the same centre.
absl::Status CenterCropPadGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const Attributes& attributes = context.node().attributes;
  ValueId shape = ShapeOf(g, context.Input(0));
  if (attributes.Has("axes")) shape = g.Op("Gather", {shape, g.Ints(attributes.Ints("axes"))});
  context.SetInputGradient(0, g.Op("CenterCropPad", {dy, shape}, attributes));
  return g.status();
}

absl::Status InferCenterCropPad(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& x = context.InputShape(0);
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  Dims dims = x.dims();
  std::vector<int64_t> axes = context.attributes().Ints("axes");
  if (!context.attributes().Has("axes")) {
    for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  }
  WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> target, TargetDims(context, 1));
  if (target.has_value() && target->size() != axes.size()) {
    return context.Error(
        absl::StrCat("input 'shape' has ", target->size(), " values for ", axes.size(), " axes"));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const int axis, AxisOf(context, axes[i], x.rank()));
    dims[axis] = target.has_value() ? (*target)[i] : Dim();
  }
  return SetCheckedOutput(context, dtype, std::move(dims));
}

// Axes that stay as they are, are parallel.
absl::StatusOr<FactorRule> PadRule(const NodeView& view) {
  const bool knows_axes = !view.HasInput(3) || view.InputValue(3) != nullptr;
  if (view.InputValue(1) == nullptr || !knows_axes) return WholeRuleOf(view);
  const Shape& x = view.InputShape(0);
  std::optional<std::vector<int64_t>> axes;
  if (view.HasInput(3)) {
    WEFT_ASSIGN_OR_RETURN(axes, RequiredInts(view, 3));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> pads, RequiredInts(view, 1));
  WEFT_ASSIGN_OR_RETURN(const std::vector<PadWidth> widths, ReadPadWidths(x.rank(), pads, axes));
  FactorRule rule = EmptyRule(view);
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool stays = widths[axis].begin == 0 && widths[axis].end == 0;
    const FactorKind kind = stays ? FactorKind::kParallel : FactorKind::kWhole;
    const int from = AddFactor(rule, x.dim(axis), kind);
    rule.inputs[0].dims[axis] = {from};
    rule.outputs[0].dims[axis] = {stays ? from
                                        : AddFactor(rule, view.OutputShape(0).dim(axis), kind)};
  }
  AddShapeInputs(view, 1, rule);
  if (!view.HasInput(2)) rule.linear = {{0}};
  return rule;
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("Pad")
                     .Input("data")
                     .Input("pads", {DType::kInt64})
                     .OptionalInput("constant_value")
                     .NeverLearnable()
                     .OptionalInput("axes", kIndexTypes)
                     .Output("output")
                     .Attr("mode", AttributeType::kString)
                     .ValueInputs({1, 3})
                     .Elements(ElementUse::kMoves)
                     .Infer(InferPad)
                     .Gradient(PadGradient)
                     .Sharding(PadRule)
                     .CostOf(MovementCost));

WEFT_REGISTER_OP(OpSchema::Onnx("CenterCropPad")
                     .Input("input_data")
                     .Input("shape", kIndexTypes)
                     .Output("output_data")
                     .Attr("axes", AttributeType::kInts)
                     .ValueInputs({1})
                     .Elements(ElementUse::kMoves)
                     .Infer(InferCenterCropPad)
                     .Gradient(CenterCropPadGradient)
                     .CostOf(MovementCost));

}  // namespace weft
