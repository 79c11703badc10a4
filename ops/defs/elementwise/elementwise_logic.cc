// Logic, bits, order and tests: results that jump. And Mod, which is near to them by its kernel.
#include "absl/strings/str_cat.h"
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "ops/defs/rules/type_lists.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

OpSchema TwoOperands(std::string name, std::initializer_list<DType> dtypes, InferFn infer) {
  return OpSchema::Onnx(std::move(name))
      .Input("A", dtypes)
      .Input("B", dtypes)
      .Output("C")
      .Infer(std::move(infer))
      .Sharding(ElementwiseRule)
      .CostOf(FlopsPerElement(1));
}

OpSchema Logic(std::string name) {
  return TwoOperands(std::move(name), {DType::kBool}, InferBroadcast).NoGradient("truth values");
}
WEFT_REGISTER_OP(Logic("And"));
WEFT_REGISTER_OP(Logic("Or"));
WEFT_REGISTER_OP(Logic("Xor"));

OpSchema Bitwise(std::string name) {
  return TwoOperands(std::move(name), kWholeTypes, InferBroadcast)
      .NoGradient("bits of whole numbers");
}
WEFT_REGISTER_OP(Bitwise("BitwiseAnd"));
WEFT_REGISTER_OP(Bitwise("BitwiseOr"));
WEFT_REGISTER_OP(Bitwise("BitwiseXor"));

absl::Status InferBitShift(InferenceContext& context) {
  const std::string direction = context.attributes().String("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    return context.Error(
        absl::StrCat("attribute direction is '", direction, "', expected 'LEFT' or 'RIGHT'"));
  }
  return InferBroadcast(context);
}
WEFT_REGISTER_OP(Bitwise("BitShift")
                     .Attr("direction", AttributeType::kString, /*required=*/true)
                     .Infer(InferBitShift));

OpSchema OneOperand(std::string name, std::initializer_list<DType> dtypes) {
  return OpSchema::Onnx(std::move(name))
      .Input("X", dtypes)
      .Output("Y")
      .Infer(InferLikeFirstInput)
      .Sharding(ElementwiseRule)
      .CostOf(FlopsPerElement(1));
}
WEFT_REGISTER_OP(OneOperand("BitwiseNot", kWholeTypes).NoGradient("bits of whole numbers"));

absl::Status InferTest(InferenceContext& context) {
  context.SetOutput(0, DType::kBool, context.InputShape(0));
  return absl::OkStatus();
}
WEFT_REGISTER_OP(
    OneOperand("IsNaN", kFloatAndFloat8Types).Infer(InferTest).NoGradient("truth values"));
WEFT_REGISTER_OP(OneOperand("IsInf", kFloatAndFloat8Types)
                     .Attr("detect_negative", AttributeType::kInt)
                     .Attr("detect_positive", AttributeType::kInt)
                     .Infer(InferTest)
                     .NoGradient("truth values"));

WEFT_REGISTER_OP(
    TwoOperands("GreaterOrEqual", kNumericTypes, InferComparison).NoGradient("truth values"));
WEFT_REGISTER_OP(
    TwoOperands("LessOrEqual", kNumericTypes, InferComparison).NoGradient("truth values"));

// Mod(a, b) = a - b q(a / b) with a whole q(...): floor, or towards zero with `fmod`.
WEFT_REGISTER_OP(TwoOperands("Mod", kNumericTypes, InferBroadcast)
                     .Attr("fmod", AttributeType::kInt)
                     .Gradient(BinaryGradient([](GraphBuilder&,
                                                 const BinaryOperands& o) { return o.dy; },
                                              [](GraphBuilder& b, const BinaryOperands& o) {
                                                // y = a - b q, so q = (a - y) / b and dy/db = -q.
                                                const Algebra a(b, o.dy);
                                                return a.Mul(o.dy, a.Div(a.Sub(o.y, o.a), o.b));
                                              })));

}  // namespace
}  // namespace weft
