// Activations that exporters write as several operators.
//   Gelu       x (1 + erf(x / sqrt 2)) / 2, and its approximation by tanh (arXiv:1606.08415)
//   Swish      x sigmoid(a x): SiLU where a is 1, QuickGELU where it is 1.702 (arXiv:1710.05941)
//   HardSwish  x max(0, min(6, x + 3)) / 6 (arXiv:1905.02244)
//   Mish       x tanh(ln(1 + e^x)) (arXiv:1908.08681)
#include <cmath>
#include <numbers>
#include <utility>

#include "ops/rewrites/rewriter.h"

namespace weft {
namespace {

// A product of three, in any order of multiplication.
Pattern ProductOfThree(const Pattern& a, const Pattern& b, const Pattern& c) {
  return Pattern::OneOf({Pattern::Op("Mul", {a, Pattern::Op("Mul", {b, c})}),
                         Pattern::Op("Mul", {b, Pattern::Op("Mul", {a, c})}),
                         Pattern::Op("Mul", {c, Pattern::Op("Mul", {a, b})})});
}

// Half of a product: exporters multiply by 0.5 or divide by 2, before or after.
Pattern HalfOfProduct(const Pattern& a, const Pattern& b) {
  return Pattern::OneOf({ProductOfThree(Pattern::Number(0.5), a, b),
                         Pattern::Op("Div", {Pattern::Op("Mul", {a, b}), Pattern::Number(2)}),
                         Pattern::Op("Mul", {Pattern::Op("Div", {a, Pattern::Number(2)}), b}),
                         Pattern::Op("Mul", {a, Pattern::Op("Div", {b, Pattern::Number(2)})})});
}

Pattern GeluPattern() {
  const Pattern x = Pattern::Value("x");
  const Pattern scaled =
      Pattern::OneOf({Pattern::Op("Div", {x, Pattern::Number(std::numbers::sqrt2)}),
                      Pattern::Op("Mul", {x, Pattern::Number(1 / std::numbers::sqrt2)})});
  return HalfOfProduct(x, Pattern::Op("Add", {Pattern::Op("Erf", {scaled}), Pattern::Number(1)}));
}

Pattern TanhGeluPattern() {
  const Pattern x = Pattern::Value("x");
  const Pattern scale = Pattern::Number(std::sqrt(2 / std::numbers::pi));
  const Pattern cubic = Pattern::Number(0.044715);
  const Pattern square =
      Pattern::OneOf({Pattern::Op("Mul", {x, x}), Pattern::Op("Pow", {x, Pattern::Number(2)})});
  const Pattern cube = Pattern::OneOf(
      {Pattern::Op("Pow", {x, Pattern::Number(3)}), Pattern::Op("Mul", {x, square})});
  const Pattern sum = Pattern::Op("Add", {x, Pattern::Op("Mul", {cubic, cube})});
  // x (1 + c x^2), as some write the same sum.
  const Pattern terms =
      Pattern::OneOf({Pattern::Op("Mul", {cubic, square}), ProductOfThree(cubic, x, x)});
  const Pattern factor = Pattern::Op("Add", {Pattern::Number(1), terms});
  const Pattern inner =
      Pattern::OneOf({Pattern::Op("Mul", {scale, sum}), ProductOfThree(scale, x, factor)});
  return HalfOfProduct(x, Pattern::Op("Add", {Pattern::Op("Tanh", {inner}), Pattern::Number(1)}));
}

Pattern SwishPattern() {
  const Pattern x = Pattern::Value("x");
  const Pattern scaled = Pattern::OneOf({Pattern::Op("Mul", {x, Pattern::Scalar("alpha")}), x});
  return Pattern::Op("Mul", {x, Pattern::Op("Sigmoid", {scaled})});
}

// max(0, min(6, x + 3)), with the bounds in one operator or in two.
Pattern Relu6OfShifted(const Pattern& x) {
  const Pattern shifted = Pattern::Op("Add", {x, Pattern::Number(3)});
  const Pattern positive = Pattern::OneOf(
      {Pattern::Op("Relu", {shifted}), Pattern::Op("Max", {shifted, Pattern::Number(0)})});
  return Pattern::OneOf({Pattern::Op("Clip", {shifted, Pattern::Number(0), Pattern::Number(6)}),
                         Pattern::Op("Min", {positive, Pattern::Number(6)})});
}

bool IsHardSigmoidOfHardSwish(const Graph&, const Node& node) {
  return std::abs(node.attributes.Float("alpha", 0.2f) - 1.0 / 6) < 1e-6 &&
         node.attributes.Float("beta", 0.5f) == 0.5f;
}

Pattern HardSwishPattern() {
  const Pattern x = Pattern::Value("x");
  const Pattern sixth = Pattern::Number(1.0 / 6);
  const Pattern clipped = Relu6OfShifted(x);
  const Pattern gate = Pattern::OneOf({Pattern::Op("Div", {clipped, Pattern::Number(6)}),
                                       Pattern::Op("Mul", {clipped, sixth}),
                                       Pattern::Op("HardSigmoid", {x}, IsHardSigmoidOfHardSwish)});
  const Pattern product = Pattern::Op("Mul", {x, clipped});
  return Pattern::OneOf({Pattern::Op("Mul", {x, gate}),
                         Pattern::Op("Div", {product, Pattern::Number(6)}),
                         Pattern::Op("Mul", {product, sixth})});
}

Pattern MishPattern() {
  const Pattern x = Pattern::Value("x");
  return Pattern::Op("Mul", {x, Pattern::Op("Tanh", {Pattern::Op("Softplus", {x})})});
}

// An operator of x alone.
Rewrite ToActivation(const std::string& name, Pattern pattern, const std::string& op,
                     Attributes attributes = {}) {
  return {name, std::move(pattern), [op, attributes](Rewriter& rewriter, const Match& match) {
            Attributes own = attributes;
            const auto alpha = match.numbers.find("alpha");
            if (alpha != match.numbers.end()) own.Set("alpha", static_cast<float>(alpha->second));
            return rewriter.Replace(match, {op, {match.value("x")}, std::move(own)});
          }};
}

}  // namespace

std::vector<Rewrite> ActivationRewrites() {
  return {
      ToActivation("gelu", GeluPattern(), "Gelu"),
      ToActivation("gelu_tanh", TanhGeluPattern(), "Gelu", {{"approximate", std::string("tanh")}}),
      ToActivation("swish", SwishPattern(), "Swish"),
      ToActivation("hard_swish", HardSwishPattern(), "HardSwish"),
      ToActivation("mish", MishPattern(), "Mish")};
}

}  // namespace weft
