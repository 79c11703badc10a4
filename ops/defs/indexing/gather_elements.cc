// GatherElements and ai.weft::GatherElementsGrad, which adds elements back where they came from.
#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferGatherElements(InferenceContext& context) {
  const SymbolicShape& data = context.InputShape(0);
  const SymbolicShape& indices = context.InputShape(1);
  context.SetOutput(0, context.InputType(0).dtype, indices);
  if (!data.has_rank() || !indices.has_rank()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        AxisOf(context, context.attributes().Int("axis", 0), data.rank()));
  bool fits = data.rank() == indices.rank();
  for (int d = 0; fits && d < data.rank(); ++d) {
    if (d == axis || !data.dim(d).is_known() || !indices.dim(d).is_known()) continue;
    fits = indices.dim(d).size() <= data.dim(d).size();
  }
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat("indices ", indices.ToString(), " do not fit data ",
                                    data.ToString(), ": expected the same rank and no axis longer,",
                                    " but for axis ", axis));
}

absl::Status InferGatherElementsGrad(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> dims, TargetDims(context, 2));
  if (!dims.has_value()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  return SetCheckedOutput(context, dtype, *dims);
}

absl::Status GatherElementsGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& builder = context.builder();
  context.SetInputGradient(
      0, builder.WeftOp("GatherElementsGrad",
                        {dy, context.Input(1), ShapeOf(builder, context.Input(0))},
                        {{"axis", context.node().attributes.Int("axis", 0)}}));
  return builder.status();
}

// Factors of the data and of the indices. Axes that both have whole are shared and parallel; the
// indices' own axis is of kind `index_kind`; an axis of which the indices cover a part is whole.
struct ElementFactors {
  std::vector<int> data;
  std::vector<int> indices;
};

absl::StatusOr<ElementFactors> FactorsOf(FactorRuleBuilder& rule, const NodeView& view,
                                         const Shape& data, FactorKind index_kind) {
  const Shape& indices = view.InputShape(1);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(view.attributes().Int("axis", 0), data.rank()));
  ElementFactors factors;
  for (int d = 0; d < data.rank(); ++d) {
    const bool shared = d != axis && data.dim(d) == indices.dim(d);
    factors.data.push_back(
        rule.Factor(data.dim(d), shared ? FactorKind::kParallel : FactorKind::kWhole));
    factors.indices.push_back(
        shared ? factors.data.back()
               : rule.Factor(indices.dim(d), d == axis ? index_kind : FactorKind::kWhole));
  }
  return factors;
}

absl::StatusOr<FactorRule> GatherElementsRule(const NodeView& view) {
  FactorRuleBuilder rule;
  WEFT_ASSIGN_OR_RETURN(const ElementFactors factors,
                        FactorsOf(rule, view, view.InputShape(0), FactorKind::kParallel));
  return rule.Input(factors.data)
      .Input(factors.indices)
      .Output(factors.indices)
      .Linear({{0}})
      .Build();
}

// Elements of several ranks add up: the indices' axis is summed over.
absl::StatusOr<FactorRule> GatherElementsGradRule(const NodeView& view) {
  FactorRuleBuilder rule;
  WEFT_ASSIGN_OR_RETURN(const ElementFactors factors,
                        FactorsOf(rule, view, view.OutputShape(0), FactorKind::kSum));
  return rule.Input(factors.indices)
      .Input(factors.indices)
      .ShapeInput(view.InputShape(2))
      .Output(factors.data)
      .Linear({{0}})
      .Build();
}

absl::Status LocalizeGatherElementsGrad(LocalizeContext& context) {
  context.SetConstantInput(2, IntsTensor(DimsOf(context.LocalOutputShape(0))));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("GatherElements")
                     .Input("data")
                     .Input("indices", kIndexTypes)
                     .Output("output")
                     .Attr("axis", AttributeType::kInt)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferGatherElements)
                     .Gradient(GatherElementsGradient)
                     .Sharding(GatherElementsRule)
                     .CostOf(MovementCost));

// Zeros of `shape`, to which the elements of dy are added in the order of the indices.
WEFT_REGISTER_OP(OpSchema::Weft("GatherElementsGrad")
                     .Input("dy", kFloatTypes)
                     .Input("indices", kIndexTypes)
                     .Input("shape", {DType::kInt64})
                     .Output("ddata")
                     .Attr("axis", AttributeType::kInt)
                     .Infer(InferGatherElementsGrad)
                     .NoGradient("part of a gradient")
                     .Sharding(GatherElementsGradRule)
                     .Localize(LocalizeGatherElementsGrad)
                     .CostOf(FlopsPerElement(1))
                     .ValueInputs({2}));

}  // namespace
}  // namespace weft
