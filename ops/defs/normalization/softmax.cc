// Softmax, LogSoftmax and Hardmax over one axis (opset 13), and their backward kernels.
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferSoftmax(InferenceContext& context) {
  const SymbolicShape& shape = context.InputShape(0);
  if (shape.has_rank() && shape.rank() > 0) {
    WEFT_RETURN_IF_ERROR(AxisAttribute(context, "axis", -1, shape.rank()).status());
  }
  return InferLikeFirstInput(context);
}

OpSchema Forward(std::string name, const std::string& backward) {
  return OpSchema::Onnx(std::move(name))
      .Input("input", kFloatTypes)
      .Output("output")
      .Attr("axis", AttributeType::kInt)
      .Infer(InferSoftmax)
      .Gradient([backward](GradientContext& context) {
        const ValueId dy = context.OutputGradient(0);
        if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
        GraphBuilder& b = context.builder();
        const int64_t axis = context.node().attributes.Int("axis", -1);
        context.SetInputGradient(0, b.WeftOp(backward, {dy, context.Output(0)}, {{"axis", axis}}));
        return b.status();
      })
      .Sharding(WholeAxisRule("axis", -1))
      .CostOf(FlopsPerElement(14))
      .InPlace(0, 0);
}

OpSchema Backward(std::string name, double flops) {
  return OpSchema::Weft(std::move(name))
      .Input("dY", kFloatTypes)
      .Input("Y", kFloatTypes)
      .Output("dX")
      .Attr("axis", AttributeType::kInt)
      .Infer(InferSoftmax)
      .NoGradient("part of a gradient")
      .Sharding(WholeAxisRule("axis", -1, {{0}}))
      .CostOf(FlopsPerElement(flops))
      .InPlace(0, 0);
}

WEFT_REGISTER_OP(Forward("Softmax", "SoftmaxGrad"));
WEFT_REGISTER_OP(Forward("LogSoftmax", "LogSoftmaxGrad"));
// One at the first largest element: a step, without a slope.
WEFT_REGISTER_OP(OpSchema::Onnx("Hardmax")
                     .Input("input", kFloatTypes)
                     .Output("output")
                     .Attr("axis", AttributeType::kInt)
                     .Infer(InferSoftmax)
                     .NoGradient("constant between its steps")
                     .Sharding(WholeAxisRule("axis", -1))
                     .CostOf(FlopsPerElement(1)));
// y * (dy - sum(dy * y))
WEFT_REGISTER_OP(Backward("SoftmaxGrad", 4));
// dy - exp(y) * sum(dy)
WEFT_REGISTER_OP(Backward("LogSoftmaxGrad", 13));

}  // namespace
}  // namespace weft
