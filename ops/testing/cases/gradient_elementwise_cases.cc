// Functions of one element, of two that broadcast, and of several.
#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Make = std::function<Operands(CaseRandom&)>;

Make Unary(double low, double high) {
  return [=](CaseRandom& random) {
    const Shape shape = SmallShape(random, static_cast<int>(random.Between(0, 3)));
    return Operands{.inputs = {random.Values(shape, low, high)}};
  };
}

Make WithKinks(Attributes attributes = {}) {
  return [=](CaseRandom& random) {
    const Shape shape = SmallShape(random, static_cast<int>(random.Between(1, 3)));
    return Operands{.attributes = attributes, .inputs = {BetweenKinks(random, shape)}};
  };
}

Make Binary(double low, double high) {
  return [=](CaseRandom& random) {
    const Shape shape = SmallShape(random, static_cast<int>(random.Between(1, 3)));
    const Shape other = random.Coin() ? shape : BroadcastableShape(random, shape);
    Operands operands{.inputs = {random.Values(shape, low, high), random.Values(other, low, high)}};
    if (random.Coin()) std::swap(operands.inputs[0], operands.inputs[1]);
    return operands;
  };
}

Make Variadic() {
  return [](CaseRandom& random) {
    const Shape shape = SmallShape(random, 2);
    std::vector<Shape> shapes = {shape};
    const int64_t others = random.Between(0, 2);
    for (int64_t i = 0; i < others; ++i) shapes.push_back(BroadcastableShape(random, shape));
    return Operands{.inputs = Distinct(random, shapes)};
  };
}

void AddUnary(GradientGenerators& g) {
  for (const char* op : {"Asinh", "Atan", "Cos", "Cosh", "Erf", "Exp", "Identity", "Mish", "Neg",
                         "Sigmoid", "Sin", "Sinh", "Softplus", "Tanh"}) {
    AddCase(g, op, Unary(-2, 2));
  }
  for (const char* op : {"Acos", "Asin", "Atanh"}) AddCase(g, op, Unary(-0.8, 0.8));
  for (const char* op : {"Log", "Reciprocal", "Sqrt"}) AddCase(g, op, Unary(0.4, 3));
  AddCase(g, "Acosh", Unary(1.3, 3));
  AddCase(g, "Tan", Unary(-1, 1));
  for (const char* op :
       {"Abs", "Celu", "Elu", "HardSwish", "LeakyRelu", "Relu", "Selu", "Softsign"}) {
    AddCase(g, op, WithKinks());
  }
  AddCase(g, "Celu", WithKinks({{"alpha", 0.7f}}));
  AddCase(g, "Elu", WithKinks({{"alpha", 0.7f}}));
  AddCase(g, "HardSigmoid", WithKinks({{"alpha", 0.4f}, {"beta", 0.5f}}));
  AddCase(g, "LeakyRelu", WithKinks({{"alpha", 0.3f}}));
  AddCase(g, "Selu", WithKinks({{"alpha", 1.5f}, {"gamma", 1.2f}}));
  AddCase(g, "Shrink", WithKinks({{"lambd", 0.5f}, {"bias", 0.2f}}));
  AddCase(g, "ThresholdedRelu", WithKinks({{"alpha", 0.5f}}));
  for (const char* approximate : {"none", "tanh"}) {
    AddCase(g, "Gelu", [=](CaseRandom& random) {
      return Operands{.attributes = {{"approximate", std::string(approximate)}},
                      .inputs = {random.Values(SmallShape(random, 2), -2, 2)}};
    });
  }
  AddCase(g, "Swish", [](CaseRandom& random) {
    return Operands{.attributes = {{"alpha", random.Coin() ? 1.0f : 1.7f}},
                    .inputs = {random.Values(SmallShape(random, 2), -2, 2)}};
  });
  AddCase(g, "SwiGLU", [](CaseRandom& random) {
    const Shape shape = SmallShape(random, 2);
    return Operands{.attributes = {{"alpha", random.Coin() ? 1.0f : 1.7f}},
                    .inputs = {random.Values(shape, -2, 2), random.Values(shape, -2, 2)}};
  });
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    AddCase(g, op, [](CaseRandom& random) {
      return Operands{.attributes = {{"axis", random.Between(-3, 2)}},
                      .inputs = {random.Values(SmallShape(random, 3), -2, 2)}};
    });
  }
  AddCase(g, "Cast", [](CaseRandom& random) {
    return Operands{.attributes = {{"to", static_cast<int64_t>(DType::kFloat64)}},
                    .inputs = {random.Values(SmallShape(random, 2))}};
  });
  AddCase(g, "CastLike", [](CaseRandom& random) {
    return Operands{.inputs = {random.Values(SmallShape(random, 2)), random.Values({1})}};
  });
}

Operands PowCase(CaseRandom& random) {
  Operands operands = Binary(0.5, 2)(random);
  operands.inputs[1] = random.Values(operands.inputs[1].shape(), -2, 2);
  return operands;
}

// Negative bases have whole exponents, which have no gradient.
Operands WholePowCase(CaseRandom& random) {
  const Shape shape = SmallShape(random, 2);
  return {.inputs = {RandomAwayFromZero(shape, random.Between(1, 1000), 0.3),
                     Indices(random, {}, -2, 3)}};
}

// The quotient stays away from whole numbers.
Operands ModCase(CaseRandom& random) {
  const Shape shape = SmallShape(random, 2);
  std::vector<float> values(shape.num_elements());
  for (float& value : values) {
    value = static_cast<float>(random.Between(-3, 3)) + 0.3f +
            0.4f * static_cast<float>(random.Between(0, 100)) / 100;
  }
  return {.attributes = {{"fmod", int64_t{1}}},
          .inputs = {Tensor::Of<float>(shape, values),
                     random.Values(BroadcastableShape(random, shape), 1, 1.02)}};
}

Operands PReluCase(CaseRandom& random) {
  const Shape shape = SmallShape(random, 3);
  return {.inputs = {BetweenKinks(random, shape),
                     random.Values(BroadcastableShape(random, shape), -1, 1)}};
}

Operands WhereCase(CaseRandom& random) {
  const Shape shape = SmallShape(random, 3);
  return {.inputs = {random.Values(BroadcastableShape(random, shape), 0, 1, DType::kBool),
                     random.Values(shape), random.Values(BroadcastableShape(random, shape))}};
}

Operands ClipCase(CaseRandom& random) {
  Operands operands{.inputs = {BetweenKinks(random, SmallShape(random, 3))}};
  operands.inputs.push_back(random.Coin() ? Tensor::Scalar<float>(-0.5f) : Tensor());
  if (random.Coin()) operands.inputs.push_back(Tensor::Scalar<float>(0.75f));
  return operands;
}

Operands AddNCase(CaseRandom& random) {
  const Shape shape = SmallShape(random, 2);
  Operands operands;
  const int64_t count = random.Between(1, 3);
  for (int64_t i = 0; i < count; ++i) operands.inputs.push_back(random.Values(shape));
  return operands;
}

}  // namespace

void AddElementwiseGradients(GradientGenerators& g) {
  AddUnary(g);
  for (const char* op : {"Add", "Sub", "Mul"}) AddCase(g, op, Binary(-2, 2));
  AddCase(g, "Div", Binary(0.6, 2));
  AddCase(g, "Pow", PowCase);
  AddCase(g, "Pow", WholePowCase);
  AddCase(g, "Mod", ModCase);
  AddCase(g, "PRelu", PReluCase);
  AddCase(g, "Where", WhereCase);
  AddCase(g, "Clip", ClipCase);
  for (const char* op : {"Max", "Min", "Mean", "Sum"}) AddCase(g, op, Variadic());
  AddCase(g, "ai.weft::AddN", AddNCase);
  AddCase(g, "ai.weft::Scale", [](CaseRandom& random) {
    return Operands{.inputs = {random.Values(SmallShape(random, 2)), random.Values({})}};
  });
}

}  // namespace weft::testing
