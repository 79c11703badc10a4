// Cases of functions, activations, logic, variadic ops and what goes along an axis.
#include "ops/testing/cases/random_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

CaseGenerator Unary(const std::string& op, double low, double high, DType dtype = DType::kFloat32) {
  return {[=](CaseRandom& random) {
    return OpCase{.op = op,
                  .inputs = {random.Values(random.OfRank(random.Between(1, 3)), low, high, dtype)}};
  }};
}

// The last axes of `shape`, some of them one.
Shape Broadcastable(CaseRandom& random, const Shape& shape) {
  Shape small;
  for (int axis = static_cast<int>(random.Between(0, shape.rank())); axis < shape.rank(); ++axis) {
    small.AddDim(random.Between(0, 3) == 0 ? 1 : shape.dim(axis));
  }
  return small;
}

CaseGenerator Binary(const std::string& op, double low, double high, DType dtype,
                     Attributes attributes = {}) {
  return {[=](CaseRandom& random) {
    const Shape shape = random.OfRank(random.Between(1, 3));
    return OpCase{.op = op,
                  .attributes = attributes,
                  .inputs = {random.Values(shape, low, high, dtype),
                             random.Values(Broadcastable(random, shape), low, high, dtype)}};
  }};
}

CaseGenerator Variadic(const std::string& op) {
  return {[op](CaseRandom& random) {
    const Shape shape = random.OfRank(random.Between(1, 3));
    OpCase op_case{.op = op, .inputs = {random.Values(shape)}};
    for (int64_t i = random.Between(0, 3); i > 0; --i) {
      op_case.inputs.push_back(random.Values(Broadcastable(random, shape)));
    }
    return op_case;
  }};
}

OpCase SwiGluCase(CaseRandom& random) {
  const Shape shape = random.OfRank(random.Between(1, 3));
  return {.op = "SwiGLU",
          .attributes = {{"alpha", random.Coin() ? 1.0f : 1.7f}},
          .inputs = {random.Values(shape, -3, 3), random.Values(shape)}};
}

OpCase ClipCase(CaseRandom& random) {
  OpCase op_case{.op = "Clip", .inputs = {random.Values(random.OfRank(2), -2, 2)}};
  if (random.Coin()) op_case.inputs.push_back(Tensor::Scalar<float>(-0.5f));
  if (op_case.inputs.size() == 2 && random.Coin()) {
    op_case.inputs.push_back(Tensor::Scalar<float>(0.5f));
  }
  return op_case;
}

CaseGenerator Arg(const std::string& op) {
  return {[op](CaseRandom& random) {
    const int rank = static_cast<int>(random.Between(1, 3));
    return OpCase{.op = op,
                  .attributes = {{"axis", random.Between(-rank, rank - 1)},
                                 {"keepdims", int64_t{random.Coin()}}},
                  .inputs = {random.Values(random.OfRank(rank))}};
  }};
}

OpCase HardmaxCase(CaseRandom& random) {
  const int rank = static_cast<int>(random.Between(1, 3));
  return {.op = "Hardmax",
          .attributes = {{"axis", random.Between(-rank, rank - 1)}},
          .inputs = {random.Values(random.OfRank(rank))}};
}

OpCase TriluCase(CaseRandom& random) {
  OpCase op_case{.op = "Trilu",
                 .attributes = {{"upper", int64_t{random.Coin()}}},
                 .inputs = {random.Values(random.OfRank(random.Between(2, 4)))}};
  if (random.Coin()) op_case.inputs.push_back(Tensor::Scalar<int64_t>(random.Between(-3, 3)));
  return op_case;
}

OpCase BitCastCase(CaseRandom& random) {
  return {.op = "BitCast",
          .attributes = {{"to", static_cast<int64_t>(DType::kInt32)}},
          .inputs = {random.Values(random.OfRank(2), 0, 99, DType::kUint32)}};
}

// Outside of training, where nothing is random.
OpCase DropoutCase(CaseRandom& random) {
  return {.op = "Dropout",
          .inputs = {random.Values(random.OfRank(2)), Tensor::Scalar<float>(0.25f)},
          .outputs = {true, random.Coin()}};
}

OpCase DropoutGradCase(CaseRandom& random) {
  const Shape shape = random.OfRank(2);
  return {.domain = "ai.weft",
          .op = "DropoutGrad",
          .inputs = {random.Values(shape), random.Values(shape, 0, 1, DType::kBool),
                     Tensor::Scalar<float>(0.25f), Tensor::Scalar<bool>(true)}};
}

OpCase RunningTermCase(CaseRandom& random) {
  return {.domain = "ai.weft",
          .op = "RunningTerm",
          .attributes = {{"decay", 0.9f}, {"share", 0.1f}},
          .inputs = {random.Values(random.OfRank(1))},
          .outputs = {true, random.Coin()}};
}

OpCase FakeQuantizeWeightCase(CaseRandom& random) {
  const Shape shape = random.OfRank(2);
  Attributes attributes = {{"to", static_cast<int64_t>(DType::kInt8)}};
  const int64_t kind = random.Between(0, 2);
  if (kind > 0) attributes.Set("axis", random.Between(0, 1));
  if (kind > 1) attributes.Set("block_size", random.Between(2, 4));
  return {.domain = "ai.weft",
          .op = "FakeQuantizeWeight",
          .attributes = std::move(attributes),
          .inputs = {random.Values(shape)},
          .outputs = {true, random.Coin()}};
}

// One scale, one for each index of an axis, or one for each block along it.
OpCase DequantizeCase(CaseRandom& random) {
  const Shape shape = random.OfRank(static_cast<int>(random.Between(1, 3)));
  const int64_t kind = random.Between(0, 2);
  const int axis = static_cast<int>(random.Between(0, shape.rank() - 1));
  Attributes attributes = {{"axis", static_cast<int64_t>(axis)}};
  Shape scales;
  if (kind == 1) scales.AddDim(shape.dim(axis));
  if (kind == 2) {
    const int64_t block = random.Between(1, 3);
    attributes.Set("block_size", block);
    scales = shape;
    scales.set_dim(axis, (shape.dim(axis) + block - 1) / block);
  }
  OpCase op_case{.op = "DequantizeLinear",
                 .attributes = std::move(attributes),
                 .inputs = {random.Values(shape, -100, 100, DType::kInt8),
                            random.Values(scales, 0.1, 1, DType::kFloat32)}};
  if (random.Coin()) op_case.inputs.push_back(random.Values(scales, -9, 9, DType::kInt8));
  return op_case;
}

// Averages of half a range, so far.
Tensor HalfARange() { return Tensor::Of<float>({3}, {-0.25f, 0.4f, 0.5f}); }

OpCase FakeQuantizeCase(CaseRandom& random) {
  return {.domain = "ai.weft",
          .op = "FakeQuantize",
          .attributes = {{"to", static_cast<int64_t>(DType::kUint8)}},
          .inputs = {random.Values(random.OfRank(2)), HalfARange()},
          .outputs = {true, random.Coin()}};
}

OpCase FakeQuantizeGradCase(CaseRandom& random) {
  const Shape shape = random.OfRank(2);
  return {.domain = "ai.weft",
          .op = "FakeQuantizeGrad",
          .attributes = {{"to", static_cast<int64_t>(DType::kFloat8E4M3Fn)}},
          .inputs = {random.Values(shape), random.Values(shape), HalfARange()}};
}

}  // namespace

void AddMathCases(CaseGenerators& generators) {
  for (const char* op :
       {"Sin",         "Cos",       "Tan",      "Atan",      "Sinh", "Cosh",  "Asinh",
        "Ceil",        "Floor",     "Round",    "LeakyRelu", "Elu",  "Celu",  "Selu",
        "HardSigmoid", "HardSwish", "Softplus", "Softsign",  "Mish", "Swish", "ThresholdedRelu",
        "Shrink",      "Gelu",      "IsNaN",    "IsInf"}) {
    generators[op] = Unary(op, -1.5, 1.5);
  }
  for (const char* op : {"Asin", "Acos", "Atanh"}) generators[op] = Unary(op, -0.9, 0.9);
  generators["Acosh"] = Unary("Acosh", 1.1, 3);
  generators["BitwiseNot"] = Unary("BitwiseNot", 0, 99, DType::kInt32);
  for (const char* op : {"And", "Or", "Xor"}) generators[op] = Binary(op, 0, 1, DType::kBool);
  for (const char* op :
       {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "LessOrEqual", "GreaterOrEqual"}) {
    generators[op] = Binary(op, 0, 9, DType::kInt32);
  }
  generators["BitShift"] =
      Binary("BitShift", 0, 9, DType::kUint32, {{"direction", std::string("LEFT")}});
  generators["Mod"] = Binary("Mod", 1, 9, DType::kInt32);
  generators["PRelu"] = Binary("PRelu", -2, 2, DType::kFloat32);
  for (const char* op : {"Sum", "Mean", "Max", "Min"}) generators[op] = Variadic(op);
  for (const char* op : {"ArgMax", "ArgMin"}) generators[op] = Arg(op);
  generators["Clip"] = {ClipCase};
  generators["SwiGLU"] = {SwiGluCase};
  generators["Hardmax"] = {HardmaxCase};
  generators["Trilu"] = {TriluCase};
  generators["BitCast"] = {BitCastCase};
  generators["Dropout"] = {DropoutCase};
  generators["ai.weft::DropoutGrad"] = {DropoutGradCase};
  generators["ai.weft::RunningTerm"] = {RunningTermCase};
  generators["DequantizeLinear"] = {.make = DequantizeCase, .has_float64 = false};
  generators["ai.weft::FakeQuantizeWeight"] = {FakeQuantizeWeightCase};
  generators["ai.weft::FakeQuantize"] = {FakeQuantizeCase};
  generators["ai.weft::FakeQuantizeGrad"] = {FakeQuantizeGradCase};
}

}  // namespace weft::testing
