// Transforms, rotations of pairs, and attention with a state.
#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// Real and complex, whole and onesided, cut and padded.
Operands DftCase(CaseRandom& random) {
  const int64_t inverse = random.Between(0, 1);
  const int64_t onesided = random.Between(0, 1);
  const bool complex = inverse != 0 || (onesided == 0 && random.Coin());
  const int64_t parts = complex ? 2 : 1;
  const bool first = random.Coin();
  Operands operands{.attributes = {{"inverse", inverse}, {"onesided", onesided}},
                    .inputs = {random.Values(first ? Shape{4, 3, parts} : Shape{2, 4, parts})}};
  operands.inputs.push_back(random.Coin() ? Tensor::Scalar<int64_t>(random.Between(2, 7))
                                          : Tensor());
  if (first || random.Coin()) {
    operands.inputs.push_back(Tensor::Scalar<int64_t>(first ? 0 : 1));
  }
  return operands;
}

Operands StftCase(CaseRandom& random) {
  const int64_t onesided = random.Between(0, 1);
  const int64_t parts = onesided != 0 ? 1 : random.Between(1, 2);
  Operands operands{
      .attributes = {{"onesided", onesided}},
      .inputs = {random.Values({2, 9, parts}), Tensor::Scalar<int64_t>(random.Between(1, 3))}};
  const bool window = random.Coin();
  operands.inputs.push_back(window ? random.Values({4}) : Tensor());
  if (!window || random.Coin()) operands.inputs.push_back(Tensor::Scalar<int64_t>(4));
  return operands;
}

GradientCase RotaryEmbeddingCase(CaseRandom& random) {
  const bool table = random.Coin();
  const bool flat = random.Coin();
  const int64_t turned = random.OneOf<int64_t>({0, 2});
  const int64_t half = turned == 0 ? 2 : 1;
  OpCase op_case{.op = "RotaryEmbedding",
                 .attributes = {{"interleaved", random.Between(0, 1)},
                                {"rotary_embedding_dim", turned},
                                {"num_heads", int64_t{2}}},
                 .inputs = {random.Values(flat ? Shape{2, 3, 8} : Shape{2, 2, 3, 4}),
                            random.Values(table ? Shape{5, half} : Shape{2, 3, half}),
                            random.Values(table ? Shape{5, half} : Shape{2, 3, half})}};
  if (table) op_case.inputs.push_back(Indices(random, {2, 3}, 0, 4));
  GradientCase result = CaseOf(std::move(op_case));
  result.checked = {0};  // nothing flows to the tables, which is said
  return result;
}

// Each update rule, heads that share keys, and the state in and out.
Operands LinearAttentionCase(CaseRandom& random, const std::string& rule) {
  const bool gated = rule == "gated" || rule == "gated_delta";
  const bool delta = rule == "delta" || rule == "gated_delta";
  Operands operands{
      .attributes = {{"kv_num_heads", int64_t{2}},
                     {"q_num_heads", int64_t{4}},
                     {"scale", random.Coin() ? 0.0f : 0.7f},
                     {"update_rule", rule}},
      .inputs = {random.Values({2, 3, 8}), random.Values({2, 3, 4}), random.Values({2, 3, 6}),
                 random.Coin() ? random.Values({2, 2, 2, 3}) : Tensor()},
      .outputs = {true, random.Coin()}};
  operands.inputs.push_back(gated ? random.Values({2, 3, random.Coin() ? 2 : 4}) : Tensor());
  if (delta) operands.inputs.push_back(random.Values({2, 3, random.Coin() ? 1 : 2}));
  return operands;
}

}  // namespace

void AddSignalGradients(GradientGenerators& g) {
  AddCase(g, "DFT", DftCase);
  AddCase(g, "STFT", StftCase);
  g["RotaryEmbedding"].push_back(RotaryEmbeddingCase);
  for (const char* rule : {"linear", "gated", "delta", "gated_delta"}) {
    AddCase(g, "LinearAttention",
            [rule](CaseRandom& random) { return LinearAttentionCase(random, rule); });
  }
}

}  // namespace weft::testing
