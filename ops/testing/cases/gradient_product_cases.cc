// Products of matrices, and convolutions.
#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

// Vectors, matrices, and batches that broadcast.
Operands MatMulCase(CaseRandom& random) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{3}, {3}},       {{3}, {2, 3, 2}},    {{2, 2, 3}, {3}},
      {{2, 3}, {3, 4}}, {{2, 2, 3}, {3, 2}}, {{2, 1, 2, 3}, {3, 3, 2}},
  };
  const auto& [a, b] = shapes[random.Between(0, 5)];
  return {.inputs = {random.Values(a), random.Values(b)}};
}

Operands GemmCase(CaseRandom& random) {
  const int64_t trans_a = random.Between(0, 1);
  const int64_t trans_b = random.Between(0, 1);
  Operands operands{
      .attributes = {{"alpha", 1.5f}, {"beta", 0.5f}, {"transA", trans_a}, {"transB", trans_b}},
      .inputs = {random.Values(trans_a != 0 ? Shape{4, 3} : Shape{3, 4}),
                 random.Values(trans_b != 0 ? Shape{2, 4} : Shape{4, 2})}};
  if (random.Coin()) {
    operands.inputs.push_back(random.Values(
        random.OneOf<Shape>({Shape{2}, Shape{3, 1}, Shape{3, 2}, Shape{1}, Shape{}})));
  }
  return operands;
}

Operands TransposingMatMulCase(CaseRandom& random) {
  const int64_t trans_a = random.Between(0, 1);
  const int64_t trans_b = random.Between(0, 1);
  return {.attributes = {{"transA", trans_a}, {"transB", trans_b}},
          .inputs = {random.Values(trans_a != 0 ? Shape{2, 4, 3} : Shape{2, 3, 4}),
                     random.Values(trans_b != 0 ? Shape{2, 4} : Shape{4, 2})}};
}

Operands MatMulReduceBatchCase(CaseRandom& random) {
  return {.inputs = {random.Values({2, 3, 4}), random.Values({2, 3, 2})}};
}

Operands ConvCase(CaseRandom& random) {
  const int64_t group = random.OneOf<int64_t>({1, 2});
  Operands operands{.attributes = {{"group", group},
                                   {"pads", Ints{1, 0, 0, 1}},
                                   {"strides", Ints{1, random.Between(1, 2)}},
                                   {"dilations", Ints{random.Between(1, 2), 1}}},
                    .inputs = {random.Values({2, 2, 4, 3}), random.Values({2, 2 / group, 2, 2})}};
  if (random.Coin()) operands.inputs.push_back(random.Values({2}));
  return operands;
}

Operands LineConvCase(CaseRandom& random) {
  return {.attributes = {{"auto_pad", std::string("SAME_UPPER")}, {"strides", Ints{2}}},
          .inputs = {random.Values({1, 2, 7}), random.Values({3, 2, 3})}};
}

Operands ConvTransposeCase(CaseRandom& random) {
  const int64_t group = random.OneOf<int64_t>({1, 2});
  Operands operands{.attributes = {{"group", group},
                                   {"pads", Ints{1, 0, 0, 1}},
                                   {"output_padding", Ints{1, 0}},
                                   {"strides", Ints{2, 1}}},
                    .inputs = {random.Values({1, 2, 3, 2}), random.Values({2, 2, 3, 2})}};
  if (random.Coin()) operands.inputs.push_back(random.Values({2 * group}));
  return operands;
}

// Samples fall between pixels, and some outside.
Operands DeformConvCase(CaseRandom& random) {
  const int64_t group = random.OneOf<int64_t>({1, 2});
  const int64_t offset_group = random.OneOf<int64_t>({1, 2});
  const Shape offset{1, 8 * offset_group, 2, 2};
  std::vector<float> offsets(offset.num_elements());
  for (float& value : offsets) {
    const auto fraction = static_cast<float>(random.Between(20, 80)) / 100;
    value = static_cast<float>(random.Between(-2, 1)) + fraction;
  }
  Operands operands{.attributes = {{"group", group},
                                   {"offset_group", offset_group},
                                   {"kernel_shape", Ints{2, 2}},
                                   {"pads", Ints{1, 0, 0, 0}},
                                   {"strides", Ints{1, 1}}},
                    .inputs = {random.Values({1, 2, 2, 3}), random.Values({2, 2 / group, 2, 2}),
                               Tensor::Of<float>(offset, offsets)}};
  operands.inputs.push_back(random.Coin() ? random.Values({2}) : Tensor());
  if (random.Coin()) operands.inputs.push_back(random.Values({1, 4 * offset_group, 2, 2}, 0, 1));
  return operands;
}

Operands CausalConvCase(CaseRandom& random) {
  Operands operands{
      .attributes = {{"activation", random.OneOf<std::string>({"none", "silu", "swish"})}},
      .inputs = {random.Values({2, 3, 4}), random.Values({3, 1, 3}),
                 random.Coin() ? random.Values({3}) : Tensor()},
      .outputs = {true, random.Coin()}};
  if (random.Coin()) operands.inputs.push_back(random.Values({2, 3, 2}));
  return operands;
}

}  // namespace

void AddProductGradients(GradientGenerators& g) {
  AddCase(g, "MatMul", MatMulCase);
  AddCase(g, "Gemm", GemmCase);
  AddCase(g, "ai.weft::MatMul", TransposingMatMulCase);
  AddCase(g, "ai.weft::MatMulReduceBatch", MatMulReduceBatchCase);
  AddCase(g, "Conv", ConvCase);
  AddCase(g, "Conv", LineConvCase);
  AddCase(g, "ConvTranspose", ConvTransposeCase);
  AddCase(g, "DeformConv", DeformConvCase);
  AddCase(g, "CausalConvWithState", CausalConvCase);
}

}  // namespace weft::testing
