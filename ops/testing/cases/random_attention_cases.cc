#include <algorithm>

#include "ops/testing/cases/random_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// What the operands of attention have in common.
struct HeadSizes {
  bool packed;
  int64_t batch;

  Shape Of(int64_t heads, int64_t length, int64_t size) const {
    return packed ? Shape{batch, length, heads * size} : Shape{batch, heads, length, size};
  }
};

// A mask that broadcasts to [batch, heads, queries, keys], of rank 2 to 4.
Shape MaskShape(CaseRandom& random, const Shape& whole) {
  Shape mask;
  for (int axis = static_cast<int>(random.Between(0, 2)); axis < 4; ++axis) {
    const bool is_broadcast = axis < 3 && random.Between(0, 2) == 0;
    mask.AddDim(is_broadcast ? 1 : whole.dim(axis));
  }
  return mask;
}

OpCase AttentionCase(CaseRandom& random) {
  const HeadSizes sizes{random.Coin(), random.Size()};
  const int64_t kv_heads = random.OneOf<int64_t>({1, 2, 3, 4, 6});
  const int64_t q_heads = kv_heads * random.OneOf<int64_t>({1, 1, 2, 3, 6});
  const int64_t keys = random.Between(2, 4);
  const int64_t queries = random.Between(1, keys);
  const int64_t key_size = random.Between(1, 3);
  const int64_t value_size = random.Between(1, 3);
  const int64_t past = random.Between(0, 2) == 0 ? random.Between(1, 2) : 0;
  OpCase op_case{.op = "Attention",
                 .inputs = {random.Values(sizes.Of(q_heads, queries, key_size)),
                            random.Values(sizes.Of(kv_heads, keys, key_size)),
                            random.Values(sizes.Of(kv_heads, keys, value_size))}};
  if (sizes.packed) {
    op_case.attributes.Set("q_num_heads", q_heads);
    op_case.attributes.Set("kv_num_heads", kv_heads);
  }
  if (random.Between(0, 2) == 0) op_case.attributes.Set("is_causal", int64_t{1});
  if (random.Between(0, 3) == 0) op_case.attributes.Set("left_window_size", int64_t{1});
  if (random.Between(0, 3) == 0) op_case.attributes.Set("softcap", 2.0f);
  if (random.Coin()) op_case.attributes.Set("scale", 0.5f);
  const Shape scores = {sizes.batch, q_heads, queries, past + keys};
  op_case.inputs.resize(7);
  if (random.Coin()) op_case.inputs[3] = random.Values(MaskShape(random, scores));
  if (past > 0) {
    op_case.inputs[4] = random.Values({sizes.batch, kv_heads, past, key_size});
    op_case.inputs[5] = random.Values({sizes.batch, kv_heads, past, value_size});
  } else if (random.Between(0, 2) == 0) {
    op_case.inputs[6] = random.Values({sizes.batch}, static_cast<double>(queries),
                                      static_cast<double>(keys) + 1, DType::kInt64);
  }
  while (!op_case.inputs.back().valid()) op_case.inputs.pop_back();
  if (random.Between(0, 2) == 0) {
    op_case.outputs = {true, random.Coin(), random.Coin(), random.Coin()};
    // Not 2: what a mask forbids is infinite there.
    op_case.attributes.Set("qk_matmul_output_mode", random.OneOf<int64_t>({0, 1, 3}));
  }
  return op_case;
}

OpCase RotaryEmbeddingCase(CaseRandom& random) {
  const HeadSizes sizes{random.Coin(), random.Size()};
  const int64_t heads = random.SmallSize();
  const int64_t length = random.SmallSize();
  const int64_t half = random.Between(1, 2);
  const bool in_part = random.Coin();  // the rest of a head is not turned
  const int64_t size = in_part ? 2 * half + random.Between(1, 2) : 2 * half;
  const bool has_table = random.Coin();
  const int64_t positions = random.Between(1, 5);
  const Shape angles = has_table ? Shape{positions, half} : Shape{sizes.batch, length, half};
  OpCase op_case{.op = "RotaryEmbedding",
                 .attributes = {{"interleaved", int64_t{random.Coin()}}},
                 .inputs = {random.Values(sizes.Of(heads, length, size)), random.Values(angles),
                            random.Values(angles)}};
  if (sizes.packed) op_case.attributes.Set("num_heads", heads);
  if (in_part) op_case.attributes.Set("rotary_embedding_dim", 2 * half);
  if (has_table) {
    op_case.inputs.push_back(
        random.Values({sizes.batch, length}, 0, static_cast<double>(positions), DType::kInt64));
  }
  return op_case;
}

// A product of heads, sums over one and several operands, a diagonal, an ellipsis, and axes of one
// that are broadcast.
OpCase EinsumCase(CaseRandom& random) {
  const int64_t b = random.Size();
  const int64_t h = random.SmallSize();
  const int64_t t = random.SmallSize();
  const int64_t d = random.SmallSize();
  const auto make = [&](const std::string& equation, const std::vector<Shape>& shapes) {
    OpCase op_case{.op = "Einsum", .attributes = {{"equation", equation}}, .inputs = {}};
    for (const Shape& shape : shapes) op_case.inputs.push_back(random.Values(shape));
    return op_case;
  };
  switch (random.Between(0, 5)) {
    case 0:
      return make("bthd,bshd->bhts", {{b, t, h, d}, {b, t, h, d}});
    case 1:
      return make("bhts,bshd->bthd", {{b, h, t, t}, {b, t, h, d}});
    case 2:
      return make("btd,dh,h->bt", {{b, t, d}, {d, h}, {h}});
    case 3:
      return make("...ij,...jk", {{b, t, h}, {1, h, d}});
    case 4:
      return make("bii,bj->ij", {{b, h, h}, {b, d}});
    default:
      return make("bij->ji", {{b, h, t}});
  }
}

}  // namespace

void AddAttentionCases(CaseGenerators& generators) {
  generators["Attention"] = {AttentionCase};
  generators["RotaryEmbedding"] = {RotaryEmbeddingCase};
  generators["Einsum"] = {EinsumCase};
}

}  // namespace weft::testing
