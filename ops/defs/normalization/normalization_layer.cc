// LayerNormalization and its gradient.
//
// ai.weft::LayerNormalizationGrad(dY, X, Scale, Mean, InvStdDev) -> dX, dScale, dB, each optional,
// has the attribute axis. Mean and InvStdDev have X's dtype where that is float64 and float32
// otherwise.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// ---- Shapes.

// Scale and B have the shape of the normalized axes, maybe with ones in front.
absl::Status CheckParameter(const InferenceContext& context, int input, const char* name,
                            const SymbolicShape& x, int axis) {
  const SymbolicShape& shape = context.InputShape(input);
  if (!shape.has_rank()) return absl::OkStatus();
  bool fits = shape.rank() >= x.rank() - axis && shape.rank() <= x.rank();
  for (int i = 0; fits && i < shape.rank(); ++i) {
    const int in_x = x.rank() - shape.rank() + i;
    const Dim expected = in_x < axis ? Dim(1) : x.dim(in_x);
    fits =
        !shape.dim(i).is_known() || !expected.is_known() || shape.dim(i).size() == expected.size();
  }
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat(name, " has shape ", shape.ToString(),
                                    ", expected that of the normalized axes ", axis, " to ",
                                    x.rank() - 1, " of X ", x.ToString()));
}

DType StatisticsType(const InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  if (dtype == DType::kFloat64) return dtype;
  const int64_t stash = context.attributes().Int("stash_type", 1);
  return IsValidDType(static_cast<int>(stash)) ? static_cast<DType>(stash) : DType::kInvalid;
}

absl::Status InferLayerNormalization(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(
      context, context.HasInput(2) ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1}));
  const SymbolicShape& x = context.InputShape(0);
  const DType statistics = StatisticsType(context);
  if (!IsFloatingPoint(statistics)) {
    return context.Error("attribute 'stash_type' does not name a floating type");
  }
  SymbolicShape reduced;
  if (x.has_rank()) {
    WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", -1, x.rank()));
    WEFT_RETURN_IF_ERROR(CheckParameter(context, 1, "Scale", x, axis));
    if (context.HasInput(2)) WEFT_RETURN_IF_ERROR(CheckParameter(context, 2, "B", x, axis));
    std::vector<Dim> dims(x.dims().begin(), x.dims().begin() + axis);
    dims.resize(x.rank(), Dim(1));
    reduced = SymbolicShape(std::move(dims));
  }
  context.SetOutput(0, context.InputType(0).dtype, x);
  for (int i = 1; i < 3; ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, statistics, reduced);
  }
  return absl::OkStatus();
}

absl::Status InferLayerNormalizationGradient(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1, 2}));
  const SymbolicShape& x = context.InputShape(1);
  if (x.has_rank()) {
    WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", -1, x.rank()));
    WEFT_RETURN_IF_ERROR(CheckParameter(context, 2, "Scale", x, axis));
  }
  if (context.HasOutput(0)) context.SetOutput(0, context.InputType(1));
  for (int i = 1; i < 3; ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, context.InputType(2));
  }
  return absl::OkStatus();
}

// ---- Gradient.

absl::Status LayerNormalizationGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (context.OutputGradient(1).valid() || context.OutputGradient(2).valid()) {
    return absl::UnimplementedError(
        absl::StrCat("node '", context.node().name,
                     "': gradients through Mean and InvStdDev of LayerNormalization have no rule"));
  }
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const ValueId mean = context.RequireOutput(1, "mean");
  const ValueId deviation = context.RequireOutput(2, "inv_std_dev");
  const bool bias = context.Input(2).valid() && context.NeedsInputGradient(2);
  const std::vector<bool> wanted = {context.NeedsInputGradient(0), context.NeedsInputGradient(1),
                                    bias};
  const std::vector<ValueId> gradients =
      g.Ops(std::string(kWeftDomain), "LayerNormalizationGrad",
            {dy, context.Input(0), context.Input(1), mean, deviation},
            {{"axis", context.node().attributes.Int("axis", -1)}}, wanted);
  WEFT_RETURN_IF_ERROR(g.status());
  for (int i = 0; i < 3; ++i) {
    if (!wanted[i]) continue;
    ValueId gradient = gradients[i];
    if (i == 2 && !(g.type(gradient).shape == g.type(context.Input(2)).shape)) {
      gradient = g.Op("Reshape", {gradient, g.Op("Shape", {context.Input(2)})});
    }
    context.SetInputGradient(i, gradient);
  }
  return g.status();
}

// ---- Sharding: rows stand alone, the normalized axes are needed whole.

class LayerFactors {
 public:
  LayerFactors(FactorRuleBuilder& rule, const Shape& x, int axis, FactorKind rows) : axis_(axis) {
    for (int i = 0; i < x.rank(); ++i) {
      x_.push_back(rule.Factor(x.dim(i), i < axis ? rows : FactorKind::kWhole));
    }
  }
  const std::vector<int>& x() const { return x_; }
  std::vector<int> statistics() const {
    std::vector<int> dims(x_.begin(), x_.begin() + axis_);
    dims.resize(x_.size(), -1);
    return dims;
  }
  std::vector<int> parameter(const Shape& shape) const {
    std::vector<int> dims;
    for (int i = 0; i < shape.rank(); ++i) {
      const int in_x = static_cast<int>(x_.size()) - shape.rank() + i;
      dims.push_back(in_x < axis_ ? -1 : x_[in_x]);
    }
    return dims;
  }

 private:
  const int axis_;
  std::vector<int> x_;
};

absl::StatusOr<FactorRule> LayerNormalizationRule(const NodeView& view) {
  const Shape& x = view.InputShape(0);
  const int axis = ConcreteAxis(view, "axis", -1, x.rank());
  FactorRuleBuilder rule;
  const LayerFactors factors(rule, x, axis, FactorKind::kParallel);
  rule.Input(factors.x()).Input(factors.parameter(view.InputShape(1)));
  if (view.num_inputs() > 2) {
    rule.Input(view.HasInput(2) ? factors.parameter(view.InputShape(2)) : std::vector<int>{});
  }
  rule.Output(factors.x());
  for (int i = 1; i < view.num_outputs(); ++i) {
    rule.Output(view.HasOutput(i) ? factors.statistics() : std::vector<int>{});
  }
  if (view.HasOutput(1) || view.HasOutput(2)) return rule.Build();
  return rule.Linear({view.HasInput(2) ? std::vector<int>{1, 2} : std::vector<int>{1}}).Build();
}

absl::StatusOr<FactorRule> LayerNormalizationGradientRule(const NodeView& view) {
  const Shape& x = view.InputShape(1);
  const int axis = ConcreteAxis(view, "axis", -1, x.rank());
  const bool sums = view.HasOutput(1) || view.HasOutput(2);
  FactorRuleBuilder rule;
  const LayerFactors factors(rule, x, axis, sums ? FactorKind::kSum : FactorKind::kParallel);
  const std::vector<int> parameter = factors.parameter(view.InputShape(2));
  rule.Input(factors.x()).Input(factors.x()).Input(parameter);
  rule.Input(factors.statistics()).Input(factors.statistics());
  for (int i = 0; i < view.num_outputs(); ++i) {
    if (!view.HasOutput(i)) {
      rule.Output({});
    } else {
      rule.Output(i == 0 ? factors.x() : parameter);
    }
  }
  return rule.Linear({{0}}).Build();
}

// Mean, squared deviations, normalization, scale and bias.
Cost LayerNormalizationCost(const NodeView& view) {
  return {7.0 * static_cast<double>(view.InputShape(0).num_elements()), OperandBytes(view)};
}
Cost LayerNormalizationGradientCost(const NodeView& view) {
  return {14.0 * static_cast<double>(view.InputShape(1).num_elements()), OperandBytes(view)};
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("LayerNormalization")
                     .Input("X", kFloatTypes)
                     .Input("Scale", kFloatTypes)
                     .Learnable()
                     .OptionalInput("B", kFloatTypes)
                     .Learnable()
                     .Output("Y")
                     .OptionalOutput("Mean")
                     .OptionalOutput("InvStdDev")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Attr("stash_type", AttributeType::kInt)
                     .Infer(InferLayerNormalization)
                     .Gradient(LayerNormalizationGradient)
                     .Sharding(LayerNormalizationRule)
                     .CostOf(LayerNormalizationCost));

WEFT_REGISTER_OP(OpSchema::Weft("LayerNormalizationGrad")
                     .GradientMissing("part of a gradient")
                     .Input("dY", kFloatTypes)
                     .Input("X", kFloatTypes)
                     .Input("Scale", kFloatTypes)
                     .Input("Mean", kFloatTypes)
                     .Input("InvStdDev", kFloatTypes)
                     .OptionalOutput("dX")
                     .OptionalOutput("dScale")
                     .OptionalOutput("dB")
                     .Attr("axis", AttributeType::kInt)
                     .Infer(InferLayerNormalizationGradient)
                     .Sharding(LayerNormalizationGradientRule)
                     .CostOf(LayerNormalizationGradientCost));

}  // namespace weft
