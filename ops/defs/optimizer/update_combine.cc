// ai.weft::Scale and ai.weft::AddN: how gradients are weighted and added up.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// ---- Scale

absl::Status InferScale(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  const std::optional<Shape> scale = context.InputShape(1).ToConcrete();
  if (scale.has_value() && scale->num_elements() != 1) {
    return context.Error(
        absl::StrCat("input s is ", context.InputType(1).ToString(), "; it must be a scalar"));
  }
  context.SetOutput(0, context.InputType(0));
  return absl::OkStatus();
}

absl::Status ScaleGradient(GradientContext& context) {
  GraphBuilder& builder = context.builder();
  const ValueId dy = context.OutputGradient(0);
  if (context.NeedsInputGradient(0)) {
    context.SetInputGradient(0, builder.WeftOp("Scale", {dy, context.Input(1)}));
  }
  if (context.NeedsInputGradient(1)) {
    const ValueId product = builder.Op("Mul", {dy, context.Input(0)});
    const ValueId sum = builder.Op("ReduceSum", {product}, {{"keepdims", int64_t{0}}});
    const ValueId shape = builder.Op("Shape", {context.Input(1)});
    context.SetInputGradient(1, builder.Op("Reshape", {sum, shape}));
  }
  return builder.status();
}

absl::StatusOr<FactorRule> ScaleRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const std::vector<int> factors = rule.Factors(view.InputShape(0));
  rule.Input(factors).ReplicatedInput(view.InputShape(1)).Output(factors);
  return rule.Linear({{0}, {1}}).Build();
}

// y = x s, where s is one number, known only when the step runs.
WEFT_REGISTER_OP(OpSchema::Weft("Scale")
                     .Input("x", kFloatTypes)
                     .Input("s", kFloatTypes)
                     .NeverLearnable()
                     .Output("y")
                     .Infer(InferScale)
                     .Gradient(ScaleGradient)
                     .Sharding(ScaleRule)
                     .CostOf(FlopsPerElement(1))
                     .InPlace(0, 0));

// ---- AddN

absl::Status InferAddN(InferenceContext& context) {
  if (!context.HasInput(0)) return context.Error("there is nothing to add");
  ValueType type = context.InputType(0);
  for (int i = 1; i < context.num_inputs(); ++i) {
    WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, i}));
    const SymbolicShape& shape = context.InputShape(i);
    if (!shape.has_rank()) continue;
    if (!type.shape.has_rank()) type.shape = shape;
    std::optional<Dims> dims =
        shape.rank() == type.shape.rank() ? std::optional(Dims()) : std::nullopt;
    for (int axis = 0; dims.has_value() && axis < shape.rank(); ++axis) {
      const std::optional<Dim> dim = MergeDims(type.shape.dim(axis), shape.dim(axis));
      if (dim.has_value()) dims->push_back(*dim);
      if (!dim.has_value()) dims.reset();
    }
    if (!dims.has_value()) {
      return context.Error(absl::StrCat("input ", i, " has shape ", shape.ToString(),
                                        ", the inputs before have ", type.shape.ToString()));
    }
    type.shape = SymbolicShape(*std::move(dims));
  }
  context.SetOutput(0, type);
  return absl::OkStatus();
}

absl::Status AddNGradient(GradientContext& context) {
  for (int i = 0; i < static_cast<int>(context.node().inputs.size()); ++i) {
    if (context.NeedsInputGradient(i)) context.SetInputGradient(i, context.OutputGradient(0));
  }
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> AddNRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const std::vector<int> factors = rule.Factors(view.OutputShape(0));
  std::vector<int> all_inputs(view.num_inputs());
  std::iota(all_inputs.begin(), all_inputs.end(), 0);
  for (int i = 0; i < view.num_inputs(); ++i) rule.Input(factors);
  return rule.Output(factors).Linear({all_inputs}).Build();
}

Cost AddNCost(const NodeView& view) {
  Cost cost;
  cost.flops = static_cast<double>(view.OutputShape(0).num_elements()) *
               static_cast<double>(view.num_inputs() - 1);
  cost.bytes = OperandBytes(view);
  return cost;
}

// y = ((x0 + x1) + x2) + ..., all of one shape.
WEFT_REGISTER_OP(OpSchema::Weft("AddN")
                     .VariadicInput("inputs", kNumericTypes)
                     .Output("y")
                     .Infer(InferAddN)
                     .Gradient(AddNGradient)
                     .Sharding(AddNRule)
                     .CostOf(AddNCost)
                     .InPlace(0, 0));

}  // namespace
}  // namespace weft
