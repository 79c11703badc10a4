// Add, Sub, Mul, Div, Pow: two operands that broadcast.
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using Sets = std::vector<std::vector<int>>;

OpSchema Arithmetic(std::string name, Sets linear, BinaryGradientFn da, BinaryGradientFn db) {
  return OpSchema::Onnx(std::move(name))
      .Input("A", kNumericTypes)
      .Input("B", kNumericTypes)
      .Output("C")
      .Infer(InferBroadcast)
      .Gradient(BinaryGradient(std::move(da), std::move(db)))
      .Sharding(LinearElementwiseRule(std::move(linear)))
      .CostOf(FlopsPerElement(1))
      .InPlace(0, 0)
      .InPlace(1, 0);
}

ValueId PassThrough(GraphBuilder&, const BinaryOperands& o) { return o.dy; }

WEFT_REGISTER_OP(Arithmetic("Add", {{0, 1}}, PassThrough, PassThrough));

WEFT_REGISTER_OP(Arithmetic("Sub", {{0, 1}}, PassThrough,
                            [](GraphBuilder& b, const BinaryOperands& o) {
                              return b.Op("Neg", {SumToLike(b, o.dy, o.b)});
                            }));

WEFT_REGISTER_OP(Arithmetic(
    "Mul", {{0}, {1}},
    [](GraphBuilder& b, const BinaryOperands& o) {
      return b.Op("Mul", {o.dy, o.b});
    },
    [](GraphBuilder& b, const BinaryOperands& o) {
      return b.Op("Mul", {o.dy, o.a});
    }));

// d(a/b)/db = -(a/b)/b.
WEFT_REGISTER_OP(Arithmetic(
    "Div", {{0}},
    [](GraphBuilder& b, const BinaryOperands& o) {
      return b.Op("Div", {o.dy, o.b});
    },
    [](GraphBuilder& b, const BinaryOperands& o) {
      const ValueId product = b.Op("Mul", {o.dy, b.Op("Div", {o.y, o.b})});
      return b.Op("Neg", {SumToLike(b, product, o.b)});
    }));

// The exponent may have another type than the base, which decides the result's.
absl::Status InferPow(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastInputs(context, {0, 1}));
  context.SetOutput(0, context.InputType(0).dtype, std::move(shape));
  return absl::OkStatus();
}

// An operand of another type than the gradient's (an integer exponent) as that type.
ValueId Like(GraphBuilder& b, ValueId value, ValueId like) {
  if (!like.valid() || !value.valid()) return kNoValue;
  const DType dtype = b.type(like).dtype;
  if (b.type(value).dtype == dtype) return value;
  return b.Op("Cast", {value}, {{"to", static_cast<int64_t>(dtype)}});
}

// d(x^y)/dx = y x^(y-1); d(x^y)/dy = x^y ln x, which is taken as 0 where x is 0 (its limit for y >
// 0).
WEFT_REGISTER_OP(
    OpSchema::Onnx("Pow")
        .Input("X", {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16,
                     DType::kInt32, DType::kInt64})
        .Input("Y", kNumericTypes)
        .NeverLearnable()
        .Output("Z")
        .Infer(InferPow)
        .Gradient(BinaryGradient(
            [](GraphBuilder& b, const BinaryOperands& o) {
              const ValueId y = Like(b, o.b, o.dy);
              const ValueId one = o.dy.valid() ? b.Scalar(b.type(o.dy).dtype, 1) : kNoValue;
              const ValueId power = b.Op("Pow", {o.a, b.Op("Sub", {y, one})});
              return b.Op("Mul", {o.dy, b.Op("Mul", {y, power})});
            },
            [](GraphBuilder& b, const BinaryOperands& o) {
              const ValueId zero = b.Scalar(b.type(o.dy).dtype, 0);
              const ValueId slope = b.Op("Mul", {o.y, b.Op("Log", {o.a})});
              const ValueId safe = b.Op("Where", {b.Op("Equal", {o.a, zero}), zero, slope});
              return b.Op("Mul", {o.dy, safe});
            }))
        .Sharding(ElementwiseRule)
        .CostOf(FlopsPerElement(20))
        .InPlace(0, 0));

}  // namespace
}  // namespace weft
