// com.microsoft::GroupQueryAttention: heads that share keys and values, with the cache that
// generation fills, taken apart into standard ops.
//
// The cache comes as past_key and past_value [batch, kv heads, P, size]: as long as what was seen
// so far, or a buffer with room for more. seqlens_k says of each sample how many keys there are
// with the new ones, less one: the new ones go to their places right behind what was seen. The
// cache that is given back is as long as the past, or as total_sequence_length where that is more.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/microsoft/microsoft_rules.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferGroupQuery(InferenceContext& context) {
  const ValueType& q = context.InputType(0);
  const int64_t heads = context.attributes().Int("num_heads", 1);
  const int64_t kv_heads = context.attributes().Int("kv_num_heads", heads);
  if (heads < 1 || heads > kMaxDim || kv_heads < 1 || heads % kv_heads != 0) {
    return context.Error(absl::StrCat("num_heads is ", heads,
                                      ", expected a multiple of kv_num_heads, ", kv_heads, ", of ",
                                      kMaxDim, " at most"));
  }
  if (!q.shape.has_rank() || q.shape.rank() != 3 || context.HasInput(1)) {
    context.SetOutput(0, q);
  } else {
    const Dim& packed = q.shape.dim(2);
    const Dim hidden =
        packed.is_known() ? Dim(packed.size() / (heads + 2 * kv_heads) * heads) : Dim();
    context.SetOutput(0, q.dtype, SymbolicShape({q.shape.dim(0), q.shape.dim(1), hidden}));
  }
  for (const int i : {1, 2}) {
    if (context.HasOutput(i)) context.SetOutput(i, q.dtype, SymbolicShape(UnknownDims(4)));
  }
  return absl::OkStatus();
}

struct Operands {
  ValueId q, k, v;  // [batch, length, heads * size]
  int64_t heads = 0;
  int64_t kv_heads = 0;
  ValueId first;      // [batch]: the place of the first query in its sequence
  ValueId positions;  // [batch, length]: of each
};

// q, k and v, which may come as one.
absl::Status TakeApart(GraphBuilder& b, const Node& node, Operands& operands) {
  operands.q = node.inputs[0];
  operands.k = InputOf(node, 1);
  operands.v = InputOf(node, 2);
  if (operands.k.valid()) return absl::OkStatus();
  const SymbolicShape packed = b.type(operands.q).shape;
  if (!packed.has_rank() || packed.rank() != 3 || !packed.dim(2).is_known()) {
    return UnsupportedFusion(node, "a packed query of unknown size");
  }
  const int64_t heads = operands.heads;
  const int64_t kv_heads = operands.kv_heads;
  const int64_t size = packed.dim(2).size() / (heads + 2 * kv_heads);
  operands.q = LastAxis(b, node.inputs[0], 0, heads * size);
  operands.k = LastAxis(b, node.inputs[0], heads * size, (heads + kv_heads) * size);
  operands.v =
      LastAxis(b, node.inputs[0], (heads + kv_heads) * size, (heads + 2 * kv_heads) * size);
  return b.status();
}

// A prompt whose samples are padded at the end begins at 0.
void FindPositions(GraphBuilder& b, const Node& node, Operands& operands) {
  const ValueId length = DimOf(b, operands.q, 1);
  const ValueId last = b.Op("Reshape", {AsDType(b, node.inputs[5], DType::kInt64), b.Ints({-1})});
  const ValueId after = b.Op("Add", {last, b.Ints({1})});
  operands.first = b.Op("Max", {b.Op("Sub", {after, length}), b.Ints({0})});
  operands.positions =
      b.Op("Add", {b.Op("Unsqueeze", {operands.first, b.Ints({1})}), PositionsBelow(b, length)});
}

void Turn(GraphBuilder& b, const Node& node, Operands& operands) {
  const ValueId given = InputOf(node, 9);
  const ValueId positions = given.valid() ? given : operands.positions;
  for (ValueId* part : {&operands.q, &operands.k}) {
    *part = b.Op("RotaryEmbedding", {*part, InputOf(node, 7), InputOf(node, 8), positions},
                 {{"num_heads", part == &operands.q ? operands.heads : operands.kv_heads},
                  {"interleaved", node.attributes.Int("rotary_interleaved", 0)}});
  }
}

// [batch, heads, length, size].
ValueId ByHead(GraphBuilder& b, ValueId packed, int64_t heads) {
  const ValueId split = b.Op("Reshape", {packed, b.Ints({0, 0, heads, -1})});
  return b.Op("Transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
}

// `value` with zeros behind the end of its axis `axis` of 4; `more` is how many, at least none.
ValueId Lengthened(GraphBuilder& b, ValueId value, int axis, ValueId more) {
  std::vector<int64_t> before(static_cast<size_t>(4 + axis), 0);
  std::vector<int64_t> after(static_cast<size_t>(3 - axis), 0);
  Values pads = {b.Ints(before), b.Op("Max", {more, b.Ints({0})})};
  if (!after.empty()) pads.push_back(b.Ints(after));
  return b.Op("Pad", {value, b.Op("Concat", pads, {{"axis", int64_t{0}}})});
}

// The cache with new keys or values at their places.
ValueId Cached(GraphBuilder& b, const Node& node, const Operands& operands, ValueId past,
               ValueId update) {
  const ValueId total = b.Op("Reshape", {AsDType(b, node.inputs[6], DType::kInt64), b.Ints({1})});
  const ValueId room = Lengthened(b, past, 2, b.Op("Sub", {total, DimOf(b, past, 2)}));
  return b.Op("TensorScatter", {room, ByHead(b, update, operands.kv_heads), operands.first},
              {{"axis", int64_t{-2}}});
}

// Which keys of the cache each query sees, [batch, 1, length, keys]; as what is added to scores
// where the node has a bias.
ValueId CacheMask(GraphBuilder& b, const Node& node, const Operands& operands, ValueId cache) {
  const ValueId length = DimOf(b, cache, 2);
  const ValueId keys = PositionsBelow(b, length);
  const ValueId rows = b.Op("Unsqueeze", {operands.positions, b.Ints({2})});
  ValueId seen = b.Op("LessOrEqual", {keys, rows});
  if (const int64_t window = node.attributes.Int("local_window_size", -1); window > 0) {
    const ValueId before = b.Op("Sub", {rows, b.Ints({window})});
    seen = b.Op("And", {seen, b.Op("Greater", {keys, before})});
  }
  const ValueId mask = b.Op("Unsqueeze", {seen, b.Ints({1})});
  const ValueId bias = InputOf(node, 10);
  if (!bias.valid()) return mask;
  const ValueId longer = Lengthened(b, bias, 3, b.Op("Sub", {length, DimOf(b, bias, 3)}));
  const ValueId never = b.Scalar(b.type(bias).dtype, -std::numeric_limits<double>::infinity());
  return b.Op("Where", {mask, longer, never});
}

Attributes AttentionAttributes(const Node& node) {
  Attributes attributes = {{"softcap", node.attributes.Float("softcap", 0)}};
  if (const float scale = node.attributes.Float("scale", 0); scale != 0) {
    attributes.Set("scale", scale);
  }
  return attributes;
}

// Output, present key and present value.
Values AttendWithPast(GraphBuilder& b, const Node& node, const Operands& operands) {
  const ValueId k = Cached(b, node, operands, InputOf(node, 3), operands.k);
  const ValueId v = Cached(b, node, operands, InputOf(node, 4), operands.v);
  const ValueId q = ByHead(b, operands.q, operands.heads);
  const ValueId mask = CacheMask(b, node, operands, k);
  const ValueId y = b.Op("Attention", {q, k, v, mask}, AttentionAttributes(node));
  const ValueId rows = b.Op("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  return {b.Op("Reshape", {rows, b.Ints({0, 0, -1})}), k, v};
}

Values AttendAlone(GraphBuilder& b, const Node& node, const Operands& operands) {
  Attributes attributes = AttentionAttributes(node);
  attributes.Set("q_num_heads", operands.heads);
  attributes.Set("kv_num_heads", operands.kv_heads);
  attributes.Set("is_causal", int64_t{1});
  const int64_t window = node.attributes.Int("local_window_size", -1);
  if (window > 0) attributes.Set("left_window_size", window - 1);
  Values inputs = {operands.q, operands.k, operands.v};
  if (InputOf(node, 10).valid()) inputs.push_back(InputOf(node, 10));
  const bool present = Wants(node, 1) || Wants(node, 2);
  return b.Ops("", "Attention", std::move(inputs), std::move(attributes), {true, present, present});
}

absl::StatusOr<Values> ExpandGroupQuery(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  if (node.attributes.Int("smooth_softmax", 0) == 1 || InputOf(node, 11).valid()) {
    return UnsupportedFusion(node, "a smooth softmax or a sink");
  }
  Operands operands;
  operands.heads = node.attributes.Int("num_heads", 1);
  operands.kv_heads = node.attributes.Int("kv_num_heads", operands.heads);
  WEFT_RETURN_IF_ERROR(TakeApart(b, node, operands));
  FindPositions(b, node, operands);
  if (node.attributes.Int("do_rotary", 0) != 0) Turn(b, node, operands);
  const bool past = InputOf(node, 3).valid() && InputOf(node, 4).valid();
  const Values parts = past ? AttendWithPast(b, node, operands) : AttendAlone(b, node, operands);
  WEFT_RETURN_IF_ERROR(b.status());
  Values outputs(node.outputs.size(), kNoValue);
  for (size_t i = 0; i < outputs.size() && i < 3; ++i) {
    if (Wants(node, i)) outputs[i] = parts[i];
  }
  return outputs;
}

WEFT_REGISTER_OP(OpSchema(kMicrosoftDomain, "GroupQueryAttention")
                     .Input("query", kFloatTypes)
                     .OptionalInput("key", kFloatTypes)
                     .OptionalInput("value", kFloatTypes)
                     .OptionalInput("past_key", kFloatTypes)
                     .NeverLearnable()
                     .OptionalInput("past_value", kFloatTypes)
                     .NeverLearnable()
                     .Input("seqlens_k", {DType::kInt32})
                     .Input("total_sequence_length", {DType::kInt32})
                     .OptionalInput("cos_cache", kFloatTypes)
                     .NeverLearnable()
                     .OptionalInput("sin_cache", kFloatTypes)
                     .NeverLearnable()
                     .OptionalInput("position_ids", {DType::kInt64})
                     .OptionalInput("attention_bias", kFloatTypes)
                     .NeverLearnable()
                     .OptionalInput("head_sink", kFloatTypes)
                     .Output("output")
                     .OptionalOutput("present_key")
                     .OptionalOutput("present_value")
                     .Attr("do_rotary", AttributeType::kInt)
                     .Attr("kv_num_heads", AttributeType::kInt, /*required=*/true)
                     .Attr("local_window_size", AttributeType::kInt)
                     .Attr("num_heads", AttributeType::kInt, /*required=*/true)
                     .Attr("rotary_interleaved", AttributeType::kInt)
                     .Attr("scale", AttributeType::kFloat)
                     .Attr("smooth_softmax", AttributeType::kInt)
                     .Attr("softcap", AttributeType::kFloat)
                     .Infer(InferGroupQuery)
                     .Expand(ExpandGroupQuery));

}  // namespace
}  // namespace weft
