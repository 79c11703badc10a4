// Ops that move elements to and from places that data name.
#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

Operands GatherCase(CaseRandom& random) {
  const int64_t axis = random.Between(-2, 1);
  const Shape data{3, 4};
  const int64_t size = data.dim(static_cast<int>(axis < 0 ? axis + 2 : axis));
  return {.attributes = {{"axis", axis}},
          .inputs = {random.Values(data), Indices(random, {2, 3}, -size, size - 1)}};
}

Operands GatherGradCase(CaseRandom& random) {
  return {.attributes = {{"axis", int64_t{0}}},
          .inputs = {random.Values({3, 2}), Indices(random, {3}, 0, 3), Int64s({4, 2})}};
}

Operands GatherElementsCase(CaseRandom& random) {
  const int64_t axis = random.Between(-2, 1);
  const bool rows = axis == 0 || axis == -2;
  const Shape indices = rows ? Shape{5, 3} : Shape{3, 5};
  const int64_t size = rows ? 3 : 4;
  return {.attributes = {{"axis", axis}},
          .inputs = {random.Values({3, 4}), Indices(random, indices, -size, size - 1)}};
}

Operands GatherNdCase(CaseRandom& random) {
  const int64_t batches = random.Between(0, 1);
  const Shape indices = batches == 0 ? Shape{3, 2} : Shape{2, 3, 1};
  return {.attributes = {{"batch_dims", batches}},
          .inputs = {random.Values({2, 3, 2}), Indices(random, indices, -2, 1)}};
}

// Without a reduction the places must be different.
Operands ScatterElementsCase(CaseRandom& random, const std::string& reduction) {
  std::vector<int64_t> places;
  for (int row = 0; row < 3; ++row) {
    for (const int64_t place : DifferentIndices(random, 3, 5)) {
      places.push_back(reduction == "none" ? place : random.Between(-5, 1));
    }
  }
  std::vector<Tensor> values = Distinct(random, {Shape{3, 5}, Shape{3, 3}});
  if (reduction == "mul") {
    // A product with one zero, and one with two.
    values[0].mutable_data<float>()[random.Between(0, 14)] = 0;
    values[1].mutable_data<float>()[random.Between(0, 8)] = 0;
    values[1].mutable_data<float>()[random.Between(0, 8)] = 0;
  }
  return {.attributes = {{"axis", int64_t{1}}, {"reduction", reduction}},
          .inputs = {values[0], Tensor::Of<int64_t>({3, 3}, places), values[1]}};
}

Operands ScatterNdCase(CaseRandom& random, const std::string& reduction) {
  Ints places = DifferentIndices(random, 3, 4);
  if (reduction != "none") places = {random.Between(-4, 3), random.Between(0, 1), 1};
  const std::vector<Tensor> values = Distinct(random, {Shape{4, 2}, Shape{3, 2}});
  return {.attributes = {{"reduction", reduction}},
          .inputs = {values[0], Tensor::Of<int64_t>({3, 1}, places), values[1]}};
}

Operands TensorScatterCase(CaseRandom& random) {
  const bool circular = random.Coin();
  Tensor starts;
  if (random.Coin()) starts = Indices(random, {2}, 0, circular ? 4 : 2);
  return {.attributes = {{"axis", int64_t{-2}},
                         {"mode", std::string(circular ? "circular" : "linear")}},
          .inputs = {random.Values({2, 2, 5, 2}), random.Values({2, 2, 3, 2}), starts}};
}

Operands TopKCase(CaseRandom& random) {
  return {.attributes = {{"axis", random.Between(-2, 1)},
                         {"largest", random.Between(0, 1)},
                         {"sorted", random.Between(0, 1)}},
          .inputs = {Distinct(random, Shape{4, 5}), Int64s({random.Between(1, 4)})},
          .outputs = {true, random.Coin()}};
}

Operands CompressCase(CaseRandom& random) {
  Operands operands{.inputs = {random.Values({3, 4})}};
  if (random.Coin()) {
    operands.attributes.Set("axis", int64_t{-1});
    operands.inputs.push_back(random.Values({3}, 0, 1, DType::kBool));
    operands.inputs[1].mutable_data<bool>()[1] = true;
  } else {
    operands.inputs.push_back(random.Values({10}, 0, 1, DType::kBool));
  }
  return operands;
}

Operands MaxUnpoolCase(CaseRandom& random) {
  Operands operands{
      .attributes = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}},
      .inputs = {random.Values({1, 2, 2, 3}),
                 Tensor::Of<int64_t>({1, 2, 2, 3}, DifferentIndices(random, 12, 48))}};
  if (random.Coin()) operands.inputs.push_back(Int64s({1, 2, 5, 7}));
  return operands;
}

Operands Col2ImCase(CaseRandom& random) {
  if (random.Coin()) {
    // Image 4 x 5 in blocks of 2 x 3, dilated and padded.
    return {.attributes = {{"dilations", Ints{2, 1}},
                           {"pads", Ints{1, 0, 0, 2}},
                           {"strides", Ints{1, 2}}},
            .inputs = {random.Values({2, 12, 9}), Int64s({4, 5}), Int64s({2, 3})}};
  }
  return {.inputs = {random.Values({1, 6, 4}), Int64s({5}), Int64s({2})}};
}

Operands EinsumCase(CaseRandom& random, const std::string& equation,
                    const std::vector<Shape>& shapes) {
  Operands operands{.attributes = {{"equation", equation}}};
  for (const Shape& shape : shapes) operands.inputs.push_back(random.Values(shape));
  return operands;
}

void AddEinsum(GradientGenerators& g) {
  const std::vector<std::pair<std::string, std::vector<Shape>>> equations = {
      {"bij,bjk->bik", {{2, 3, 4}, {2, 4, 2}}},
      {"...ij,jk->...ik", {{2, 3, 4}, {4, 2}}},
      {"i,j", {{3}, {2}}},
      {"ij->", {{3, 2}}},
      {"ii->i", {{3, 3}}},
      {"ii", {{3, 3}}},
      {"iji,k->jk", {{2, 3, 2}, {2}}},
      {"ij,kj->i", {{2, 3}, {4, 3}}},
  };
  for (const auto& [equation, shapes] : equations) {
    AddCase(g, "Einsum", [equation = equation, shapes = shapes](CaseRandom& random) {
      return EinsumCase(random, equation, shapes);
    });
  }
}

}  // namespace

void AddIndexGradients(GradientGenerators& g) {
  AddCase(g, "Gather", GatherCase);
  AddCase(g, "ai.weft::GatherGrad", GatherGradCase);
  AddCase(g, "GatherElements", GatherElementsCase);
  AddCase(g, "GatherND", GatherNdCase);
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    AddCase(g, "ScatterElements",
            [reduction](CaseRandom& random) { return ScatterElementsCase(random, reduction); });
    AddCase(g, "ScatterND",
            [reduction](CaseRandom& random) { return ScatterNdCase(random, reduction); });
  }
  AddCase(g, "TensorScatter", TensorScatterCase);
  AddCase(g, "TopK", TopKCase);
  AddCase(g, "Compress", CompressCase);
  AddCase(g, "MaxUnpool", MaxUnpoolCase);
  AddCase(g, "Col2Im", Col2ImCase);
  AddEinsum(g);
}

}  // namespace weft::testing
