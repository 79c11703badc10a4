// Trigonometric, hyperbolic and rounding functions of one operand.
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"

namespace weft {
namespace {

// 1 + v^2, 1 - v^2 or v^2 - 1.
enum class Radicand : uint8_t { kOnePlusSquare, kOneMinusSquare, kSquareMinusOne };

ValueId Build(const Algebra& a, Radicand radicand, ValueId v) {
  switch (radicand) {
    case Radicand::kOnePlusSquare:
      return a.Add(1, a.Square(v));
    case Radicand::kOneMinusSquare:
      return a.Sub(1, a.Square(v));
    case Radicand::kSquareMinusOne:
      return a.Sub(a.Square(v), a.Number(1));
  }
  return kNoValue;
}

// dx = dy * factor(x), where `factor` names an op.
OpSchema WithFactor(std::string name, std::string factor, bool negative = false) {
  return FloatFunction(std::move(name), 15)
      .Gradient(UnaryGradient(
          [factor = std::move(factor), negative](GraphBuilder& b, ValueId dy, ValueId x, ValueId) {
            const ValueId dx = b.Op("Mul", {dy, b.Op(factor, {x})});
            return negative ? b.Op("Neg", {dx}) : dx;
          }));
}

// dx = dy / radicand(x), or dy / sqrt(radicand(x)).
OpSchema WithDivisor(std::string name, Radicand radicand, bool root, bool negative = false) {
  return FloatFunction(std::move(name), 20)
      .Gradient(UnaryGradient([=](GraphBuilder& b, ValueId dy, ValueId x, ValueId) {
        const ValueId value = Build(Algebra(b, x), radicand, x);
        const ValueId dx = b.Op("Div", {dy, root ? b.Op("Sqrt", {value}) : value});
        return negative ? b.Op("Neg", {dx}) : dx;
      }));
}

WEFT_REGISTER_OP(WithFactor("Sin", "Cos"));
WEFT_REGISTER_OP(WithFactor("Cos", "Sin", /*negative=*/true));
WEFT_REGISTER_OP(WithFactor("Sinh", "Cosh"));
WEFT_REGISTER_OP(WithFactor("Cosh", "Sinh"));
WEFT_REGISTER_OP(FloatFunction("Tan", 20).Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy,
                                                                    ValueId, ValueId y) {
  return b.Op("Mul", {dy, Build(Algebra(b, y), Radicand::kOnePlusSquare, y)});
})));

WEFT_REGISTER_OP(WithDivisor("Asin", Radicand::kOneMinusSquare, /*root=*/true));
WEFT_REGISTER_OP(WithDivisor("Acos", Radicand::kOneMinusSquare, /*root=*/true, /*negative=*/true));
WEFT_REGISTER_OP(WithDivisor("Atan", Radicand::kOnePlusSquare, /*root=*/false));
WEFT_REGISTER_OP(WithDivisor("Asinh", Radicand::kOnePlusSquare, /*root=*/true));
WEFT_REGISTER_OP(WithDivisor("Acosh", Radicand::kSquareMinusOne, /*root=*/true));
WEFT_REGISTER_OP(WithDivisor("Atanh", Radicand::kOneMinusSquare, /*root=*/false));

// Steps: their slope is zero wherever they have one.
WEFT_REGISTER_OP(FloatFunction("Ceil", 1).NoGradient("constant between its steps"));
WEFT_REGISTER_OP(FloatFunction("Floor", 1).NoGradient("constant between its steps"));
WEFT_REGISTER_OP(FloatFunction("Round", 1).NoGradient("constant between its steps"));

}  // namespace
}  // namespace weft
