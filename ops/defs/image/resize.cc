// Resize. (Upsample is rewritten to it at import.)
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/image/resize_axis.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

enum Inputs { kX, kRoi, kScales, kSizes };

// Of the strings only nearest can make something.
const std::vector<DType> kResizeTypes = {
    DType::kFloat32, DType::kFloat64,   DType::kFloat16,    DType::kBfloat16,
    DType::kInt8,    DType::kInt16,     DType::kInt32,      DType::kInt64,
    DType::kUint8,   DType::kUint16,    DType::kUint32,     DType::kUint64,
    DType::kBool,    DType::kComplex64, DType::kComplex128, DType::kString};

// An optional input that is there with elements.
bool IsGiven(const InferenceContext& context, int i) {
  if (!context.HasInput(i)) return false;
  const SymbolicShape& shape = context.InputShape(i);
  return !(shape.has_rank() && shape.rank() == 1 && shape.dim(0).is_known() &&
           shape.dim(0).size() == 0);
}

absl::StatusOr<std::optional<std::vector<double>>> KnownDoubles(const InferenceContext& context,
                                                                int i) {
  using Result = std::optional<std::vector<double>>;
  if (!IsGiven(context, i)) return Result(std::vector<double>());
  const Tensor* value = context.InputValue(i);
  if (value == nullptr) return Result();
  absl::StatusOr<std::vector<double>> values = ToDoubles(*value);
  if (!values.ok()) return context.Error(std::string(values.status().message()));
  return Result(*std::move(values));
}

// The output's dimensions from known values. An unknown dimension that is not resized stays.
absl::Status InferFromValues(InferenceContext& context, const std::vector<double>& roi,
                             const std::vector<double>& scales, const std::vector<int64_t>& sizes) {
  const SymbolicShape& x = context.InputShape(kX);
  // An unknown dimension is tried with two sizes: what it becomes is known if both give the same.
  std::vector<std::vector<ResizeAxis>> tries;
  for (const int64_t stand_in : {1009, 2017}) {
    Shape shape;
    for (const Dim& dim : x.dims()) shape.AddDim(dim.is_known() ? dim.size() : stand_in);
    auto axes = ReadResizeAxes(context.attributes(), shape, roi, scales, sizes);
    if (!axes.ok()) return context.Error(std::string(axes.status().message()));
    tries.push_back(*std::move(axes));
  }
  Dims dims;
  for (int i = 0; i < x.rank(); ++i) {
    const ResizeAxis& a = tries[0][i];
    const ResizeAxis& b = tries[1][i];
    if (a.output == b.output) {
      dims.push_back(Dim(a.output));
    } else {
      const bool same = a.output == a.input && b.output == b.input;
      dims.push_back(same ? x.dim(i) : Dim());
    }
  }
  return SetCheckedOutput(context, context.InputType(kX).dtype, std::move(dims));
}

// Sizes that are symbols.
absl::Status InferFromDims(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(kX);
  Dims dims = UnknownDims(x.rank());
  const bool stretch =
      context.attributes().String("keep_aspect_ratio_policy", "stretch") == "stretch";
  std::vector<int64_t> axes = context.attributes().Ints("axes");
  if (!context.attributes().Has("axes")) {
    for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  } else {
    dims = x.dims();
  }
  std::optional<Dims> sizes;
  if (stretch && IsGiven(context, kSizes)) sizes = context.InputDims(kSizes);
  for (size_t i = 0; i < axes.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const int axis, AxisOf(context, axes[i], x.rank()));
    dims[axis] = sizes.has_value() && sizes->size() == axes.size() ? (*sizes)[i] : Dim();
  }
  return SetCheckedOutput(context, context.InputType(kX).dtype, std::move(dims));
}

absl::Status InferResize(InferenceContext& context) {
  const absl::StatusOr<ResizeSpec> spec = ResizeSpec::Create(context.attributes());
  if (!spec.ok()) return context.Error(std::string(spec.status().message()));
  const SymbolicShape& x = context.InputShape(kX);
  const DType dtype = context.InputType(kX).dtype;
  const bool number = IsFloatingPoint(dtype) || IsInteger(dtype) || dtype == DType::kBool;
  if (!number && dtype != DType::kInvalid && spec->mode != ResizeMode::kNearest) {
    return context.Error("elements of this type can be copied (mode nearest), not summed");
  }
  if (!x.has_rank()) {
    context.SetOutput(0, context.InputType(kX).dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const auto scales, KnownDoubles(context, kScales));
  std::optional<std::vector<int64_t>> sizes = std::vector<int64_t>();
  if (IsGiven(context, kSizes)) {
    WEFT_ASSIGN_OR_RETURN(sizes, KnownInts(context, kSizes));
  }
  WEFT_ASSIGN_OR_RETURN(const auto roi, KnownDoubles(context, kRoi));
  const bool needs_roi = spec->coordinates == CoordinateMode::kTfCropAndResize;
  bool known = scales.has_value() && sizes.has_value() && (roi.has_value() || !needs_roi);
  // One factor for all axes is known only with all of them.
  if (spec->policy != AspectPolicy::kStretch) known = known && x.ToConcrete().has_value();
  if (!known) return InferFromDims(context);
  return InferFromValues(context, roi.value_or(std::vector<double>()), *scales, *sizes);
}

// A weighted sum per axis that is resized; counted as the taps of the widest filter.
Cost ResizeCost(const NodeView& view) {
  const std::string mode = view.attributes().String("mode", "nearest");
  const double taps = mode == "nearest" ? 0 : mode == "linear" ? 4 : 8;
  return {taps * static_cast<double>(view.OutputShape(0).num_elements()), OperandBytes(view)};
}

// ---- Gradient: every element gets dY back from those that it was a part of, by the same weights.

absl::Status ResizeGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(kX)) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  std::vector<ValueId> inputs = {dy, ShapeOf(g, context.Input(kX)), context.Input(kRoi),
                                 context.Input(kScales), context.Input(kSizes)};
  while (!inputs.back().valid()) inputs.pop_back();
  context.SetInputGradient(kX,
                           g.WeftOp("ResizeGrad", std::move(inputs), context.node().attributes));
  return g.status();
}

absl::Status InferResizeGrad(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> dims, TargetDims(context, 1));
  if (!dims.has_value()) {
    context.SetOutput(0, context.InputType(0).dtype, SymbolicShape());
    return absl::OkStatus();
  }
  return SetCheckedOutput(context, context.InputType(0).dtype, *dims);
}

// ---- Sharding: axes that stay as they are, are parallel.

bool HasElements(const NodeView& view, int i) {
  return view.HasInput(i) && view.InputShape(i).num_elements() > 0;
}
// The elements of an optional input; none where it is absent or empty. REQUIRES: they are known.
absl::StatusOr<std::vector<double>> GivenDoubles(const NodeView& view, int i) {
  if (!HasElements(view, i)) return std::vector<double>();
  return ToDoubles(*view.InputValue(i));
}

// Of X or dX as `x` and Y or dY as `y`; roi, scales and sizes are inputs `roi` and the two after.
absl::StatusOr<FactorRule> ResizeRuleOf(const NodeView& view, const Shape& x, const Shape& y,
                                        int roi, bool forward) {
  WEFT_ASSIGN_OR_RETURN(const ResizeSpec spec, ResizeSpec::Create(view.attributes()));
  const bool crops = spec.coordinates == CoordinateMode::kTfCropAndResize;
  for (int i = crops ? roi : roi + 1; i <= roi + 2; ++i) {
    if (HasElements(view, i) && view.InputValue(i) == nullptr) return WholeRuleOf(view);
  }
  std::vector<double> region;
  if (crops) {
    WEFT_ASSIGN_OR_RETURN(region, GivenDoubles(view, roi));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> scales, GivenDoubles(view, roi + 1));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> sizes, GivenDoubles(view, roi + 2));
  WEFT_ASSIGN_OR_RETURN(const std::vector<ResizeAxis> axes,
                        ReadResizeAxes(view.attributes(), x, region, scales,
                                       std::vector<int64_t>(sizes.begin(), sizes.end())));
  FactorRule rule = EmptyRule(view);
  for (int axis = 0; axis < x.rank(); ++axis) {
    // Where one factor is found for all axes, a shard would find another.
    const bool stays = spec.policy == AspectPolicy::kStretch && axes[axis].IsIdentity();
    const FactorKind kind = stays ? FactorKind::kParallel : FactorKind::kWhole;
    const int of_x = AddFactor(rule, x.dim(axis), kind);
    const int of_y = stays ? of_x : AddFactor(rule, y.dim(axis), kind);
    rule.inputs[0].dims[axis] = {forward ? of_x : of_y};
    rule.outputs[0].dims[axis] = {forward ? of_y : of_x};
  }
  AddShapeInputs(view, 1, rule);
  if (!crops) rule.linear = {{0}};
  return rule;
}

absl::StatusOr<FactorRule> ResizeRule(const NodeView& view) {
  return ResizeRuleOf(view, view.InputShape(0), view.OutputShape(0), kRoi, /*forward=*/true);
}
absl::StatusOr<FactorRule> ResizeGradRule(const NodeView& view) {
  return ResizeRuleOf(view, view.OutputShape(0), view.InputShape(0), kRoi + 1, /*forward=*/false);
}

// Sizes that are given are those of the shard of Y.
absl::Status LocalizeSizes(LocalizeContext& context, int input, const Shape& y) {
  const Node& node = context.node();
  const bool given = static_cast<int>(node.inputs.size()) > input && node.inputs[input].valid();
  if (!given || context.GlobalInputShape(input).num_elements() == 0) return absl::OkStatus();
  std::vector<int64_t> axes = node.attributes.Ints("axes");
  if (!node.attributes.Has("axes")) {
    for (int i = 0; i < y.rank(); ++i) axes.push_back(i);
  }
  std::vector<int64_t> sizes;
  for (const int64_t axis : axes) {
    sizes.push_back(y.dim(static_cast<int>(axis < 0 ? axis + y.rank() : axis)));
  }
  context.SetConstantInput(input, IntsTensor(sizes));
  return absl::OkStatus();
}

absl::Status LocalizeResize(LocalizeContext& context) {
  if (context.LocalOutputShape(0) == context.GlobalOutputShape(0)) return absl::OkStatus();
  return LocalizeSizes(context, kSizes, context.LocalOutputShape(0));
}

absl::Status LocalizeResizeGrad(LocalizeContext& context) {
  if (context.LocalOutputShape(0) == context.GlobalOutputShape(0)) return absl::OkStatus();
  context.SetConstantInput(1, IntsTensor(DimsOf(context.LocalOutputShape(0))));
  return LocalizeSizes(context, kSizes + 1, context.LocalInputShape(0));
}

OpSchema WithResizeAttributes(OpSchema schema) {
  return schema.Attr("antialias", AttributeType::kInt)
      .Attr("axes", AttributeType::kInts)
      .Attr("coordinate_transformation_mode", AttributeType::kString)
      .Attr("cubic_coeff_a", AttributeType::kFloat)
      .Attr("exclude_outside", AttributeType::kInt)
      .Attr("extrapolation_value", AttributeType::kFloat)
      .Attr("keep_aspect_ratio_policy", AttributeType::kString)
      .Attr("mode", AttributeType::kString)
      .Attr("nearest_mode", AttributeType::kString);
}

}  // namespace

// dX of Resize(X, roi, scales, sizes), whose shape is given, from dY.
WEFT_REGISTER_OP(
    WithResizeAttributes(OpSchema::Weft("ResizeGrad").GradientMissing("part of a gradient"))
        .Input("dY", kFloatTypes)
        .Input("shape", {DType::kInt64})
        .OptionalInput("roi", {DType::kFloat32, DType::kFloat16, DType::kFloat64})
        .OptionalInput("scales", {DType::kFloat32})
        .OptionalInput("sizes", {DType::kInt64})
        .Output("dX")
        .ValueInputs({1, 2, 3, 4})
        .Infer(InferResizeGrad)
        .Sharding(ResizeGradRule)
        .Localize(LocalizeResizeGrad)
        .CostOf([](const NodeView& view) {
          return Cost{4.0 * static_cast<double>(view.InputShape(0).num_elements()),
                      OperandBytes(view)};
        }));

WEFT_REGISTER_OP(WithResizeAttributes(OpSchema::Onnx("Resize"))
                     .Input("X", kResizeTypes)
                     .OptionalInput("roi", {DType::kFloat32, DType::kFloat16, DType::kFloat64})
                     .NeverLearnable()
                     .OptionalInput("scales", {DType::kFloat32})
                     .NeverLearnable()
                     .OptionalInput("sizes", {DType::kInt64})
                     .Output("Y")
                     .ValueInputs({kRoi, kScales, kSizes})
                     .Elements(ElementUse::kMoves)
                     .Infer(InferResize)
                     .Gradient(ResizeGradient)
                     .Sharding(ResizeRule)
                     .Localize(LocalizeResize)
                     .CostOf(ResizeCost));

}  // namespace weft
