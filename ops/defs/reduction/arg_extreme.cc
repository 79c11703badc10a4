// ArgMax and ArgMin.
#include "absl/strings/str_cat.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferArg(InferenceContext& context) {
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) {
    context.SetOutput(0, DType::kInt64, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", 0, input.rank()));
  if (input.dim(axis).is_known() && input.dim(axis).size() == 0) {
    return context.Error(absl::StrCat("axis ", axis,
                                      " is empty: it has no largest or smallest "
                                      "element"));
  }
  std::vector<Dim> dims = input.dims();
  if (context.attributes().Int("keepdims", 1) != 0) {
    dims[axis] = Dim(1);
  } else {
    dims.erase(dims.begin() + axis);
  }
  context.SetOutput(0, DType::kInt64, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> ArgRule(const NodeView& view) {
  const Shape& input = view.InputShape(0);
  const int axis = ConcreteAxis(view, "axis", 0, input.rank());
  const bool keepdims = view.attributes().Int("keepdims", 1) != 0;
  FactorRuleBuilder rule;
  std::vector<int> from;
  std::vector<int> to;
  for (int d = 0; d < input.rank(); ++d) {
    from.push_back(
        rule.Factor(input.dim(d), d == axis ? FactorKind::kWhole : FactorKind::kParallel));
    if (d != axis) {
      to.push_back(from.back());
    } else if (keepdims) {
      to.push_back(-1);
    }
  }
  return rule.Input(from).Output(to).Build();
}

OpSchema Arg(std::string name) {
  return OpSchema::Onnx(std::move(name))
      .Input("data", kNumericTypes)
      .Output("reduced")
      .Attr("axis", AttributeType::kInt)
      .Attr("keepdims", AttributeType::kInt)
      .Attr("select_last_index", AttributeType::kInt)
      .Infer(InferArg)
      .NoGradient("positions and counts")
      .Sharding(ArgRule)
      .CostOf([](const NodeView& view) {
        return Cost{static_cast<double>(view.InputShape(0).num_elements()), OperandBytes(view)};
      });
}

WEFT_REGISTER_OP(Arg("ArgMax"));
WEFT_REGISTER_OP(Arg("ArgMin"));

}  // namespace
}  // namespace weft
