// RMSNormalization and its gradient: y = scale x / sqrt(mean(x^2) + epsilon) over the axes from
// `axis` on. Zhang and Sennrich, Root Mean Square Layer Normalization (2019).
//
// ai.weft::RMSNormalizationGrad(dY, X, Scale) -> dX, dScale, each optional, has the attributes axis
// and epsilon. Scale has the normalized axes whole, and all operands have one type. With
// r = 1 / sqrt(mean(x^2) + epsilon), n = r x and g = scale dY:
//   dX = r (g - n mean(g n)), dScale = the sum of dY n over rows
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// ---- Shapes.

// Scale is broadcast to the normalized axes, and Y has its type.
absl::Status InferRmsNormalization(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& scale = context.InputShape(1);
  if (x.has_rank()) {
    WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", -1, x.rank()));
    bool fits = !scale.has_rank() || scale.rank() <= x.rank();
    for (int i = 0; fits && scale.has_rank() && i < scale.rank(); ++i) {
      const int in_x = x.rank() - scale.rank() + i;
      const bool one = scale.dim(i).is_known() && scale.dim(i).size() == 1;
      fits = one || (in_x >= axis && MergeDims(scale.dim(i), x.dim(in_x)).has_value());
    }
    if (!fits) {
      return context.Error(absl::StrCat("scale of shape ", scale.ToString(),
                                        " does not fit the normalized axes from ", axis, " on of ",
                                        "X ", x.ToString()));
    }
  }
  context.SetOutput(0, context.InputType(1).dtype, x);
  return absl::OkStatus();
}

absl::Status InferRmsGradient(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1, 2}));
  const SymbolicShape& x = context.InputShape(1);
  if (x.has_rank()) WEFT_RETURN_IF_ERROR(AxisAttribute(context, "axis", -1, x.rank()).status());
  if (context.HasOutput(0)) context.SetOutput(0, context.InputType(1));
  if (context.HasOutput(1)) context.SetOutput(1, context.InputType(2));
  return absl::OkStatus();
}

// ---- Body.

// The type in which half-precision values are summed.
DType RmsWide(const Graph& graph, ValueId value) {
  const DType dtype = graph.value(value).type.dtype;
  return dtype == DType::kFloat64 ? dtype : DType::kFloat32;
}

absl::StatusOr<int> RankOfX(const ExpandContext& context) {
  const SymbolicShape& x = context.graph().value(context.node().inputs[0]).type.shape;
  if (x.has_rank()) return x.rank();
  return absl::UnimplementedError(absl::StrCat("node '", context.node().name, "' (",
                                               context.node().op,
                                               "): the rank of its input is not known"));
}

absl::StatusOr<std::vector<ValueId>> ExpandRms(ExpandContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int rank, RankOfX(context));
  GraphBuilder& g = context.builder();
  const std::vector<ValueId>& inputs = context.node().inputs;
  const Attributes& attributes = context.node().attributes;
  WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(attributes.Int("axis", -1), rank));
  std::vector<int64_t> axes(rank - axis);
  std::iota(axes.begin(), axes.end(), axis);
  const DType wide = RmsWide(context.graph(), inputs[0]);
  const ValueId x = AsDType(g, inputs[0], wide);
  const ValueId mean = g.Op("ReduceMean", {g.Op("Mul", {x, x}), g.Ints(axes)});
  const ValueId deviation =
      g.Op("Sqrt", {g.Op("Add", {mean, g.Scalar(wide, attributes.Float("epsilon", 1e-5f))})});
  const ValueId normal = AsDType(g, g.Op("Div", {x, deviation}), g.type(inputs[1]).dtype);
  const ValueId y = g.Op("Mul", {normal, inputs[1]});
  WEFT_RETURN_IF_ERROR(g.status());
  return std::vector<ValueId>{y};
}

// ---- Gradient.

// Whether scale has one element for each of a row, none that is broadcast.
bool HasWholeRows(const SymbolicShape& scale, const SymbolicShape& x, int axis) {
  if (!scale.has_rank()) return false;
  int64_t elements = 1;
  int64_t row = 1;
  for (const Dim& dim : scale.dims()) {
    if (!dim.is_known()) return false;
    elements *= dim.size();
  }
  for (int i = axis; i < x.rank(); ++i) {
    if (!x.dim(i).is_known()) return false;
    row *= x.dim(i).size();
  }
  return elements == row;
}

// From simple operators, where scale is broadcast or types differ.
absl::Status RmsGradientByParts(GradientContext& context, const std::vector<int64_t>& axes) {
  GraphBuilder& g = context.builder();
  const DType wide = RmsWide(context.graph(), context.Input(0));
  const ValueId x = AsDType(g, context.Input(0), wide);
  const ValueId dy = AsDType(g, context.OutputGradient(0), wide);
  const ValueId mean = g.Op("ReduceMean", {g.Op("Mul", {x, x}), g.Ints(axes)});
  const ValueId epsilon = g.Scalar(wide, context.node().attributes.Float("epsilon", 1e-5f));
  const ValueId inverse = g.Op("Reciprocal", {g.Op("Sqrt", {g.Op("Add", {mean, epsilon})})});
  const ValueId normal = g.Op("Mul", {x, inverse});
  if (context.NeedsInputGradient(1)) {
    const ValueId scale = context.Input(1);
    const ValueId sum = SumToLike(g, g.Op("Mul", {dy, normal}), scale);
    context.SetInputGradient(1, AsDType(g, sum, g.type(scale).dtype));
  }
  if (context.NeedsInputGradient(0)) {
    const ValueId scaled = g.Op("Mul", {dy, AsDType(g, context.Input(1), wide)});
    const ValueId along = g.Op("ReduceMean", {g.Op("Mul", {scaled, normal}), g.Ints(axes)});
    const ValueId rest = g.Op("Sub", {scaled, g.Op("Mul", {normal, along})});
    const ValueId dx = g.Op("Mul", {inverse, rest});
    context.SetInputGradient(0, AsDType(g, dx, g.type(context.Input(0)).dtype));
  }
  return g.status();
}

absl::Status RmsNormalizationGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const Attributes& attributes = context.node().attributes;
  WEFT_ASSIGN_OR_RETURN(const int rank, RankForGradient(context, context.Input(0)));
  WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(attributes.Int("axis", -1), rank));
  const ValueType& x = g.type(context.Input(0));
  const ValueType& scale = g.type(context.Input(1));
  const bool is_plain = x.dtype == scale.dtype && HasWholeRows(scale.shape, x.shape, axis);
  if (!is_plain) {
    std::vector<int64_t> axes(static_cast<size_t>(rank - axis));
    std::iota(axes.begin(), axes.end(), axis);
    return RmsGradientByParts(context, axes);
  }
  const std::vector<bool> wanted = {context.NeedsInputGradient(0), context.NeedsInputGradient(1)};
  const std::vector<ValueId> gradients = g.Ops(
      std::string(kWeftDomain), "RMSNormalizationGrad", {dy, context.Input(0), context.Input(1)},
      {{"axis", int64_t{axis}}, {"epsilon", attributes.Float("epsilon", 1e-5f)}}, wanted);
  WEFT_RETURN_IF_ERROR(g.status());
  for (int i = 0; i < 2; ++i) {
    if (wanted[static_cast<size_t>(i)])
      context.SetInputGradient(i, gradients[static_cast<size_t>(i)]);
  }
  return absl::OkStatus();
}

// ---- Sharding: rows stand alone, the normalized axes are needed whole.

// The factors of a scale: those of the normalized axes that it lies along, none where it is
// broadcast.
std::vector<int> ScaleFactors(const std::vector<int>& x_factors, const Shape& x, int axis,
                              const Shape& scale) {
  std::vector<int> factors;
  for (int i = 0; i < scale.rank(); ++i) {
    const int in_x = x.rank() - scale.rank() + i;
    const bool lies_along = in_x >= axis && scale.dim(i) == x.dim(in_x);
    factors.push_back(lies_along ? x_factors[static_cast<size_t>(in_x)] : -1);
  }
  return factors;
}

std::vector<int> RowFactors(FactorRuleBuilder& rule, const Shape& x, int axis, FactorKind rows) {
  std::vector<int> factors;
  for (int i = 0; i < x.rank(); ++i) {
    factors.push_back(rule.Factor(x.dim(i), i < axis ? rows : FactorKind::kWhole));
  }
  return factors;
}

absl::StatusOr<FactorRule> RmsNormalizationRule(const NodeView& view) {
  const Shape& x = view.InputShape(0);
  const int axis = ConcreteAxis(view, "axis", -1, x.rank());
  FactorRuleBuilder rule;
  const std::vector<int> factors = RowFactors(rule, x, axis, FactorKind::kParallel);
  rule.Input(factors).Input(ScaleFactors(factors, x, axis, view.InputShape(1))).Output(factors);
  return rule.Linear({{1}}).Build();
}

absl::StatusOr<FactorRule> RmsNormalizationGradientRule(const NodeView& view) {
  const Shape& x = view.InputShape(1);
  const int axis = ConcreteAxis(view, "axis", -1, x.rank());
  FactorRuleBuilder rule;
  const std::vector<int> factors =
      RowFactors(rule, x, axis, view.HasOutput(1) ? FactorKind::kSum : FactorKind::kParallel);
  const std::vector<int> scale = ScaleFactors(factors, x, axis, view.InputShape(2));
  rule.Input(factors).Input(factors).Input(scale);
  for (int i = 0; i < view.num_outputs(); ++i) {
    if (!view.HasOutput(i)) {
      rule.Output({});
    } else {
      rule.Output(i == 0 ? factors : scale);
    }
  }
  return rule.Linear({{0}}).Build();
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("RMSNormalization")
                     .Input("X", kFloatTypes)
                     .Input("scale", kFloatTypes)
                     .Learnable()
                     .Output("Y")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Attr("stash_type", AttributeType::kInt)
                     .Infer(InferRmsNormalization)
                     .Expand(ExpandRms)
                     .Gradient(RmsNormalizationGradient)
                     .Sharding(RmsNormalizationRule)
                     .CostOf(FlopsPerElement(4)));

WEFT_REGISTER_OP(OpSchema::Weft("RMSNormalizationGrad")
                     .GradientMissing("part of a gradient")
                     .Input("dY", kFloatTypes)
                     .Input("X", kFloatTypes)
                     .Input("Scale", kFloatTypes)
                     .OptionalOutput("dX")
                     .OptionalOutput("dScale")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Infer(InferRmsGradient)
                     .Sharding(RmsNormalizationGradientRule)
                     .CostOf(FlopsPerElement(8)));

}  // namespace weft
