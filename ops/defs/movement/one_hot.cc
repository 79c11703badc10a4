// OneHot: a new axis along which one element is "on".
#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The depth, which may be of any numeric type, when it is known.
absl::StatusOr<Dim> DepthOf(InferenceContext& context) {
  const std::optional<Shape> shape = context.InputShape(1).ToConcrete();
  if (shape.has_value() && shape->num_elements() != 1) {
    return context.Error(
        absl::StrCat("depth has the shape ", shape->ToString(), ", expected one element"));
  }
  const Tensor* value = context.InputValue(1);
  if (value == nullptr || value->num_elements() != 1) {
    const std::optional<std::vector<Dim>> dims = context.InputDims(1);
    return dims.has_value() && dims->size() == 1 ? (*dims)[0] : Dim();
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> depth, ToInt64s(*value));
  if (depth[0] < 0) {
    return context.Error(absl::StrCat("depth is ", depth[0], ", expected 0 or more"));
  }
  return Dim(depth[0]);
}

absl::Status InferOneHot(InferenceContext& context) {
  const DType dtype = context.InputType(2).dtype;
  const std::optional<Shape> values = context.InputShape(2).ToConcrete();
  if (values.has_value() && *values != Shape{2}) {
    return context.Error(
        absl::StrCat("values has the shape ", values->ToString(), ", expected [2]"));
  }
  WEFT_ASSIGN_OR_RETURN(const Dim depth, DepthOf(context));
  const SymbolicShape& indices = context.InputShape(0);
  if (!indices.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", -1, indices.rank() + 1));
  Dims dims = indices.dims();
  dims.insert(dims.begin() + axis, depth);
  return SetCheckedOutput(context, dtype, std::move(dims));
}

// Every position makes its row alone.
absl::StatusOr<FactorRule> OneHotRule(const NodeView& view) {
  const Shape& output = view.OutputShape(0);
  const int axis = ConcreteAxis(view, "axis", -1, output.rank());
  FactorRuleBuilder rule;
  const std::vector<int> positions = rule.Factors(view.InputShape(0));
  std::vector<int> rows = positions;
  rows.insert(rows.begin() + axis, rule.Factor(output.dim(axis), FactorKind::kWhole));
  rule.Input(positions).ShapeInput(view.InputShape(1)).ReplicatedInput(view.InputShape(2));
  return rule.Output(rows).Build();
}

WEFT_REGISTER_OP(OpSchema::Onnx("OneHot")
                     .Input("indices", kNumericTypes)
                     .Input("depth", kNumericTypes)
                     .NeverLearnable()
                     .Input("values")
                     .NeverLearnable()
                     .Output("output")
                     .Attr("axis", AttributeType::kInt)
                     .Infer(InferOneHot)
                     .NoGradient("made of sizes, positions or attributes alone")
                     .Sharding(OneHotRule)
                     .ValueInputs({1})
                     .Elements(ElementUse::kMoves)
                     .CostOf(FlopsPerElement(0)));

}  // namespace
}  // namespace weft
