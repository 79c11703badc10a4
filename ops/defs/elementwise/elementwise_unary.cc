// Functions of one operand, element by element, and the backward kernels of those whose gradient is
// one pass better than a composition.
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"

namespace weft {
namespace {

OpSchema Unary(std::string name, std::initializer_list<DType> dtypes, double flops) {
  return OpSchema::Onnx(std::move(name))
      .Input("X", dtypes)
      .Output("Y")
      .Infer(InferLikeFirstInput)
      .Sharding(ElementwiseRule)
      .CostOf(FlopsPerElement(flops))
      .InPlace(0, 0);
}

// dx from dy and one operand of the same shape; linear in dy.
OpSchema BackwardOfUnary(std::string name, std::string operand, double flops) {
  return OpSchema::Weft(std::move(name))
      .Input("dY", kFloatTypes)
      .Input(std::move(operand), kFloatTypes)
      .Output("dX")
      .Infer(InferBroadcast)
      .NoGradient("part of a gradient")
      .Sharding(LinearElementwiseRule({{0}}))
      .CostOf(FlopsPerElement(flops))
      .InPlace(0, 0)
      .InPlace(1, 0);
}

ValueId Half(GraphBuilder& b, ValueId like) {
  return like.valid() ? b.Scalar(b.type(like).dtype, 0.5) : kNoValue;
}

WEFT_REGISTER_OP(Unary("Neg", kNumericTypes, 1)
                     .Sharding(LinearElementwiseRule({{0}}))
                     .Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy, ValueId, ValueId) {
                       return b.Op("Neg", {dy});
                     })));

WEFT_REGISTER_OP(Unary("Exp", kFloatTypes, 10)
                     .Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy, ValueId, ValueId y) {
                       return b.Op("Mul", {dy, y});
                     })));

WEFT_REGISTER_OP(Unary("Log", kFloatTypes, 10)
                     .Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy, ValueId x, ValueId) {
                       return b.Op("Div", {dy, x});
                     })));

WEFT_REGISTER_OP(Unary("Sqrt", kFloatTypes, 4)
                     .Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy, ValueId, ValueId y) {
                       return b.Op("Mul", {b.Op("Div", {dy, y}), Half(b, dy)});
                     })));

WEFT_REGISTER_OP(Unary("Reciprocal", kFloatTypes, 4)
                     .Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy, ValueId, ValueId y) {
                       return b.Op("Neg", {b.Op("Mul", {dy, b.Op("Mul", {y, y})})});
                     })));

WEFT_REGISTER_OP(Unary("Abs", kNumericTypes, 1)
                     .Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy, ValueId x, ValueId) {
                       return b.Op("Mul", {dy, b.Op("Sign", {x})});
                     })));

WEFT_REGISTER_OP(Unary("Sign", kNumericTypes, 1).NoGradient("constant between its steps"));

// erf(x) = 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.
WEFT_REGISTER_OP(Unary("Erf", kFloatTypes, 20)
                     .Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy, ValueId x, ValueId) {
                       return b.WeftOp("ErfGrad", {dy, x});
                     })));
// dy * 2/sqrt(pi) * exp(-x^2)
WEFT_REGISTER_OP(BackwardOfUnary("ErfGrad", "X", 13));

WEFT_REGISTER_OP(Unary("Relu", kNumericTypes, 1)
                     .Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy, ValueId, ValueId y) {
                       return b.WeftOp("ReluGrad", {dy, y});
                     })));
// dy where y > 0, else 0
WEFT_REGISTER_OP(BackwardOfUnary("ReluGrad", "Y", 1));

WEFT_REGISTER_OP(Unary("Sigmoid", kFloatTypes, 14)
                     .Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy, ValueId, ValueId y) {
                       return b.WeftOp("SigmoidGrad", {dy, y});
                     })));
// dy * y * (1 - y)
WEFT_REGISTER_OP(BackwardOfUnary("SigmoidGrad", "Y", 3));

WEFT_REGISTER_OP(Unary("Tanh", kFloatTypes, 16)
                     .Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy, ValueId, ValueId y) {
                       return b.WeftOp("TanhGrad", {dy, y});
                     })));
// dy * (1 - y^2)
WEFT_REGISTER_OP(BackwardOfUnary("TanhGrad", "Y", 3));

// Of activations whose slope is a formula of many nodes (elementwise_activation.cc).
// dy * (Phi(x) + x phi(x)), with the standard normal distribution and its density
WEFT_REGISTER_OP(BackwardOfUnary("GeluGrad", "X", 38));
// dy * (s + x s (1 - s) 2 u'), s = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
WEFT_REGISTER_OP(BackwardOfUnary("TanhGeluGrad", "X", 28));
// dy * (s + x s (1 - s)), s = sigmoid(x)
WEFT_REGISTER_OP(BackwardOfUnary("SwishGrad", "X", 18));

}  // namespace
}  // namespace weft
