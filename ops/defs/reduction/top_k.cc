// TopK: the K largest or smallest elements along an axis, with their positions.
#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferTopK(InferenceContext& context) {
  const ValueType& x = context.InputType(0);
  if (!x.shape.has_rank()) {
    context.SetOutput(0, x.dtype, SymbolicShape());
    context.SetOutput(1, DType::kInt64, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", -1, x.shape.rank()));
  std::vector<Dim> dims = x.shape.dims();
  WEFT_ASSIGN_OR_RETURN(const auto k, KnownInts(context, 1));
  if (k.has_value() && k->size() != 1) {
    return context.Error(absl::StrCat("K has ", k->size(), " elements, expected 1"));
  }
  if (k.has_value()) {
    const Dim& dim = dims[axis];
    if ((*k)[0] < 0 || (dim.is_known() && (*k)[0] > dim.size())) {
      return context.Error(absl::StrCat("K is ", (*k)[0], ", expected 0 to ", dim.ToString(),
                                        ", the size of axis ", axis));
    }
    dims[axis] = Dim((*k)[0]);
  } else if (const auto symbolic = context.InputDims(1);
             symbolic.has_value() && symbolic->size() == 1) {
    dims[axis] = (*symbolic)[0];
  } else {
    dims[axis] = Dim();
  }
  context.SetOutput(0, x.dtype, SymbolicShape(dims));
  context.SetOutput(1, DType::kInt64, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

// What was not among the K gets nothing.
absl::Status TopKGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const ValueId indices = context.RequireOutput(1, "indices");
  context.SetInputGradient(
      0, b.WeftOp("GatherElementsGrad", {dy, indices, ShapeOf(b, context.Input(0))},
                  {{"axis", context.node().attributes.Int("axis", -1)}}));
  return b.status();
}

absl::StatusOr<FactorRule> TopKRule(const NodeView& view) {
  const Shape& x = view.InputShape(0);
  const int axis = ConcreteAxis(view, "axis", -1, x.rank());
  FactorRuleBuilder rule;
  std::vector<int> input;
  for (int d = 0; d < x.rank(); ++d) {
    input.push_back(rule.Factor(x.dim(d), d == axis ? FactorKind::kWhole : FactorKind::kParallel));
  }
  std::vector<int> output = input;
  output[axis] = rule.Factor(view.OutputShape(0).dim(axis), FactorKind::kWhole);
  rule.Input(input).ShapeInput(view.InputShape(1));
  for (int i = 0; i < view.num_outputs(); ++i) {
    rule.Output(view.HasOutput(i) ? output : std::vector<int>());
  }
  return rule.Build();
}

WEFT_REGISTER_OP(OpSchema::Onnx("TopK")
                     .Input("X", kNumericTypes)
                     .Input("K", {DType::kInt64})
                     .NeverLearnable()
                     .Output("Values")
                     .Output("Indices")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("largest", AttributeType::kInt)
                     .Attr("sorted", AttributeType::kInt)
                     .Infer(InferTopK)
                     .Gradient(TopKGradient)
                     .Sharding(TopKRule)
                     .ValueInputs({1})
                     .CostOf([](const NodeView& view) {
                       const double elements =
                           static_cast<double>(view.InputShape(0).num_elements());
                       return Cost{4 * elements, OperandBytes(view)};
                     }));

}  // namespace
}  // namespace weft
