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

using P = Pattern;

// A product of three, in any order of multiplication.
P ProductOfThree(const P& a, const P& b, const P& c) {
  return P::OneOf({P::Op("Mul", {a, P::Op("Mul", {b, c})}), P::Op("Mul", {b, P::Op("Mul", {a, c})}),
                   P::Op("Mul", {c, P::Op("Mul", {a, b})})});
}

// Half of a product: exporters multiply by 0.5 or divide by 2, before or after.
P HalfOfProduct(const P& a, const P& b) {
  return P::OneOf({ProductOfThree(P::Number(0.5), a, b),
                   P::Op("Div", {P::Op("Mul", {a, b}), P::Number(2)}),
                   P::Op("Mul", {P::Op("Div", {a, P::Number(2)}), b}),
                   P::Op("Mul", {a, P::Op("Div", {b, P::Number(2)})})});
}

P GeluPattern() {
  const P x = P::Value("x");
  const P scaled = P::OneOf({P::Op("Div", {x, P::Number(std::numbers::sqrt2)}),
                             P::Op("Mul", {x, P::Number(1 / std::numbers::sqrt2)})});
  return HalfOfProduct(x, P::Op("Add", {P::Op("Erf", {scaled}), P::Number(1)}));
}

P TanhGeluPattern() {
  const P x = P::Value("x");
  const P scale = P::Number(std::sqrt(2 / std::numbers::pi));
  const P cubic = P::Number(0.044715);
  const P square = P::OneOf({P::Op("Mul", {x, x}), P::Op("Pow", {x, P::Number(2)})});
  const P cube = P::OneOf({P::Op("Pow", {x, P::Number(3)}), P::Op("Mul", {x, square})});
  const P sum = P::Op("Add", {x, P::Op("Mul", {cubic, cube})});
  // x (1 + c x^2), as some write the same sum.
  const P terms = P::OneOf({P::Op("Mul", {cubic, square}), ProductOfThree(cubic, x, x)});
  const P factor = P::Op("Add", {P::Number(1), terms});
  const P inner = P::OneOf({P::Op("Mul", {scale, sum}), ProductOfThree(scale, x, factor)});
  return HalfOfProduct(x, P::Op("Add", {P::Op("Tanh", {inner}), P::Number(1)}));
}

P SwishPattern() {
  const P x = P::Value("x");
  const P scaled = P::OneOf({P::Op("Mul", {x, P::Scalar("alpha")}), x});
  return P::Op("Mul", {x, P::Op("Sigmoid", {scaled})});
}

// max(0, min(6, x + 3)), with the bounds in one operator or in two.
P Relu6OfShifted(const P& x) {
  const P shifted = P::Op("Add", {x, P::Number(3)});
  const P positive = P::OneOf({P::Op("Relu", {shifted}), P::Op("Max", {shifted, P::Number(0)})});
  return P::OneOf({P::Op("Clip", {shifted, P::Number(0), P::Number(6)}),
                   P::Op("Min", {positive, P::Number(6)})});
}

bool IsHardSigmoidOfHardSwish(const Graph&, const Node& node) {
  return std::abs(node.attributes.Float("alpha", 0.2f) - 1.0 / 6) < 1e-6 &&
         node.attributes.Float("beta", 0.5f) == 0.5f;
}

P HardSwishPattern() {
  const P x = P::Value("x");
  const P sixth = P::Number(1.0 / 6);
  const P clipped = Relu6OfShifted(x);
  const P gate = P::OneOf({P::Op("Div", {clipped, P::Number(6)}), P::Op("Mul", {clipped, sixth}),
                           P::Op("HardSigmoid", {x}, IsHardSigmoidOfHardSwish)});
  const P product = P::Op("Mul", {x, clipped});
  return P::OneOf({P::Op("Mul", {x, gate}), P::Op("Div", {product, P::Number(6)}),
                   P::Op("Mul", {product, sixth})});
}

P MishPattern() {
  const P x = P::Value("x");
  return P::Op("Mul", {x, P::Op("Tanh", {P::Op("Softplus", {x})})});
}

// An operator of x alone.
Rewrite ToActivation(const std::string& name, P pattern, const std::string& op,
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
