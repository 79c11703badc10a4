// ai.onnx.preview.training: Adagrad, Adam and Momentum, which compute new values of tensors and of
// their states. Inputs: the learning rate, the update count, then groups of n tensors: the values,
// their gradients, and each kind of state; outputs: the values and each kind of state.
//
// Files carry them; training itself adds the in-place updates of optimizer.h.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr char kDomain[] = "ai.onnx.preview.training";

absl::Status CheckScalar(InferenceContext& context, int input) {
  const std::optional<Shape> shape = context.InputShape(input).ToConcrete();
  if (!shape.has_value() || shape->num_elements() == 1) return absl::OkStatus();
  return context.Error(
      absl::StrCat("input ", input, " is ", shape->ToString(), ", expected a scalar"));
}

// `states`: kinds of state per tensor.
InferFn InferUpdate(int states) {
  return [states](InferenceContext& context) {
    WEFT_RETURN_IF_ERROR(CheckScalar(context, 0));
    WEFT_RETURN_IF_ERROR(CheckScalar(context, 1));
    const int tensors = (context.num_inputs() - 2) / (states + 2);
    const bool fits = tensors > 0 && context.num_inputs() == 2 + tensors * (states + 2) &&
                      context.num_outputs() <= tensors * (states + 1);
    if (!fits) {
      return context.Error(absl::StrCat(context.num_inputs(), " inputs and ", context.num_outputs(),
                                        " outputs, expected 2 + ", states + 2, " n inputs and ",
                                        states + 1, " n outputs for n tensors"));
    }
    for (int i = 2; i < context.num_inputs(); ++i) {
      if (!context.HasInput(i)) return context.Error(absl::StrCat("input ", i, " is missing"));
      const int value = 2 + (i - 2) % tensors;
      WEFT_RETURN_IF_ERROR(CheckSameDType(context, {value, i}));
      const std::optional<Shape> own = context.InputShape(i).ToConcrete();
      const std::optional<Shape> wanted = context.InputShape(value).ToConcrete();
      if (!own.has_value() || !wanted.has_value() || *own == *wanted) continue;
      return context.Error(absl::StrCat("input ", i, " is ", own->ToString(), ", expected ",
                                        wanted->ToString(), " as the tensor it belongs to, input ",
                                        value));
    }
    for (int o = 0; o < context.num_outputs(); ++o) {
      context.SetOutput(o, context.InputType(2 + o % tensors));
    }
    return absl::OkStatus();
  };
}

OpSchema Update(std::string name, int states) {
  return OpSchema(kDomain, std::move(name))
      .Input("R", {DType::kFloat32, DType::kFloat64})
      .NeverLearnable()
      .Input("T", {DType::kInt64})
      .VariadicInput("inputs", {DType::kFloat32, DType::kFloat64})
      .NeverLearnable()
      .VariadicOutput("outputs")
      .Attr("norm_coefficient", AttributeType::kFloat)
      .Infer(InferUpdate(states))
      .NoGradient("optimizers end a step");
}

WEFT_REGISTER_OP(Update("Adagrad", 1)
                     .Attr("decay_factor", AttributeType::kFloat)
                     .Attr("epsilon", AttributeType::kFloat));
WEFT_REGISTER_OP(Update("Adam", 2)
                     .Attr("alpha", AttributeType::kFloat)
                     .Attr("beta", AttributeType::kFloat)
                     .Attr("epsilon", AttributeType::kFloat)
                     .Attr("norm_coefficient_post", AttributeType::kFloat));
WEFT_REGISTER_OP(Update("Momentum", 1)
                     .Attr("alpha", AttributeType::kFloat, /*required=*/true)
                     .Attr("beta", AttributeType::kFloat, /*required=*/true)
                     .Attr("mode", AttributeType::kString, /*required=*/true));

// ---- Gradient: names what it differentiates; training/ puts nodes in its place (see
// training/graph/gradient_nodes.h).

absl::Status InferGradient(InferenceContext& context) {
  for (int o = 0; o < std::min(context.num_outputs(), context.num_inputs()); ++o) {
    if (context.HasOutput(o) && context.HasInput(o)) context.SetOutput(o, context.InputType(o));
  }
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema(kDomain, "Gradient")
                     .VariadicInput("Inputs")
                     .VariadicOutput("Outputs")
                     .Attr("xs", AttributeType::kStrings, /*required=*/true)
                     .Attr("y", AttributeType::kString, /*required=*/true)
                     .Attr("zs", AttributeType::kStrings)
                     .Infer(InferGradient)
                     .GradientMissing("replaced by the gradients that it names before a graph is "
                                      "differentiated"));

}  // namespace
}  // namespace weft
