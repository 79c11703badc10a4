#include "ops/testing/cases/random_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// A shape that broadcasts into `shape`: some axes are one, some of the first are left out.
Shape Broadcastable(CaseRandom& random, const Shape& shape) {
  const int skipped = random.Coin() ? 0 : static_cast<int>(random.Between(0, shape.rank()));
  Shape small;
  for (int axis = skipped; axis < shape.rank(); ++axis) {
    small.AddDim(random.Between(0, 3) == 0 ? 1 : shape.dim(axis));
  }
  return small;
}

CaseGenerator Unary(const std::string& op, double low, double high) {
  return {[=](CaseRandom& random) {
    return OpCase{.op = op,
                  .inputs = {random.Values(random.OfRank(random.Between(1, 3)), low, high)}};
  }};
}

CaseGenerator Binary(const std::string& op, double low, double high,
                     DType dtype = DType::kFloat32) {
  return {[=](CaseRandom& random) {
    const Shape shape = random.OfRank(random.Between(1, 3));
    const Shape other = random.Coin() ? shape : Broadcastable(random, shape);
    OpCase op_case{
        .op = op,
        .inputs = {random.Values(shape, low, high, dtype), random.Values(other, low, high, dtype)}};
    if (random.Coin()) std::swap(op_case.inputs[0], op_case.inputs[1]);
    return op_case;
  }};
}

CaseGenerator BackwardOfUnary(const std::string& op) {
  return {[=](CaseRandom& random) {
    const Shape shape = random.OfRank(random.Between(1, 3));
    return OpCase{.domain = "ai.weft",
                  .op = op,
                  .inputs = {random.Values(shape, -2, 2), random.Values(shape, -2, 2)}};
  }};
}

OpCase WhereCase(CaseRandom& random) {
  const Shape shape = random.OfRank(3);
  return {.op = "Where",
          .inputs = {random.Values(Broadcastable(random, shape), 0, 1, DType::kBool),
                     random.Values(shape), random.Values(Broadcastable(random, shape))}};
}

OpCase CastCase(CaseRandom& random) {
  return {.op = "Cast",
          .attributes = {{"to", static_cast<int64_t>(
                                    random.OneOf<DType>({DType::kInt32, DType::kFloat64}))}},
          .inputs = {random.Values(random.OfRank(2), -9, 9)}};
}

OpCase ScaleCase(CaseRandom& random) {
  return {.domain = "ai.weft",
          .op = "Scale",
          .inputs = {random.Values(random.OfRank(2)), random.Values({}, 1, 2)}};
}

OpCase AddNCase(CaseRandom& random) {
  const Shape shape = random.OfRank(2);
  OpCase op_case{.domain = "ai.weft", .op = "AddN", .inputs = {}};
  for (int64_t i = random.Between(1, 4); i > 0; --i) {
    op_case.inputs.push_back(random.Values(shape));
  }
  return op_case;
}

}  // namespace

void AddElementwiseCases(CaseGenerators& generators) {
  for (const char* op : {"Neg", "Exp", "Erf", "Relu", "Sigmoid", "Tanh", "Abs", "Sign"}) {
    generators[op] = Unary(op, -2, 2);
  }
  for (const char* op : {"Log", "Sqrt", "Reciprocal"}) generators[op] = Unary(op, 0.5, 2);
  for (const char* op : {"Add", "Sub", "Mul"}) generators[op] = Binary(op, -2, 2);
  for (const char* op : {"Div", "Pow"}) generators[op] = Binary(op, 0.5, 2);
  for (const char* op : {"Equal", "Less", "Greater"}) {
    generators[op] = Binary(op, 0, 3, DType::kInt32);
  }
  for (const char* op : {"ReluGrad", "SigmoidGrad", "TanhGrad", "ErfGrad", "GeluGrad",
                         "TanhGeluGrad", "SwishGrad"}) {
    generators[std::string("ai.weft::") + op] = BackwardOfUnary(op);
  }
  generators["Not"] = {[](CaseRandom& random) {
    return OpCase{.op = "Not", .inputs = {random.Values(random.OfRank(2), 0, 1, DType::kBool)}};
  }};
  generators["Where"] = {WhereCase, /*only_moves=*/true};
  generators["Cast"] = {CastCase};
  generators["ai.weft::Scale"] = {ScaleCase};
  generators["ai.weft::AddN"] = {AddNCase};
}

}  // namespace weft::testing
