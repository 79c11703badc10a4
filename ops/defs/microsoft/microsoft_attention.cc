// com.microsoft: attention blocks and embeddings of transformers, taken apart into standard ops.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/microsoft/microsoft_rules.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// A mask of ones and zeros over keys, [batch, keys], as what is added to scores: 0 and `filter`.
// Shaped to broadcast to [batch, heads, queries, keys].
ValueId MaskBias(GraphBuilder& b, ValueId mask, DType dtype, float filter, int rank) {
  const ValueId ones = AsDType(b, mask, dtype);
  const ValueId missing = b.Op("Sub", {b.Scalar(dtype, 1), ones});
  const ValueId bias = b.Op("Mul", {missing, b.Scalar(dtype, filter)});
  return b.Op("Unsqueeze", {bias, rank == 2 ? b.Ints({1, 2}) : b.Ints({1})});
}

// Which of the keys of each sample count, from `lengths` [batch]: bool, of a
// shape that broadcasts to [batch, heads, queries, keys].
ValueId LengthsMask(GraphBuilder& b, ValueId lengths, ValueId k) {
  const ValueId at = b.Constant(Tensor::Scalar<int64_t>(1));
  const ValueId keys = b.Op("Gather", {ShapeOf(b, k), at});
  const ValueId places = b.Op("Range", {b.Constant(Tensor::Scalar<int64_t>(0)), keys,
                                        b.Constant(Tensor::Scalar<int64_t>(1))});
  const ValueId columns = b.Op("Unsqueeze", {AsDType(b, lengths, DType::kInt64), b.Ints({1})});
  return b.Op("Unsqueeze", {b.Op("Less", {places, columns}), b.Ints({1, 2})});
}

// What the blocks share: packed q, k, v with masks and a past, attended.
struct Block {
  ValueId q, k, v;
  int64_t heads = 0;
  ValueId mask = kNoValue;      // input mask_index or key_padding_mask
  ValueId bias = kNoValue;      // added to the scores
  ValueId past_key = kNoValue;  // [batch, heads, length, size]
  ValueId past_value = kNoValue;
  bool wants_present = false;
};

// Outputs y, and present key and value where wanted.
absl::StatusOr<Values> Attend(ExpandContext& context, const Block& block) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  Attributes attributes = {{"q_num_heads", block.heads}, {"kv_num_heads", block.heads}};
  if (node.attributes.Has("scale") && node.attributes.Float("scale", 0) != 0) {
    attributes.Set("scale", node.attributes.Float("scale", 0));
  }
  if (node.attributes.Int("unidirectional", 0) != 0) attributes.Set("is_causal", int64_t{1});
  Values inputs = {block.q, block.k, block.v, block.bias, block.past_key, block.past_value};
  if (block.mask.valid()) {
    const SymbolicShape& mask = b.type(block.mask).shape;
    const float filter = node.attributes.Float("mask_filter_value", -10000.0f);
    const bool lengths = mask.has_rank() && mask.rank() == 1 && !block.past_key.valid();
    const bool keys = mask.has_rank() && (mask.rank() == 2 || mask.rank() == 3);
    if (lengths) {
      const ValueId counts = LengthsMask(b, block.mask, block.k);
      const DType dtype = b.type(block.q).dtype;
      inputs[3] = block.bias.valid() ? b.Op("Where", {counts, block.bias, b.Scalar(dtype, filter)})
                                     : counts;
    } else if (keys) {
      const ValueId masked = MaskBias(b, block.mask, b.type(block.q).dtype, filter, mask.rank());
      inputs[3] = block.bias.valid() ? b.Op("Add", {masked, block.bias}) : masked;
    } else {
      return UnsupportedFusion(node, absl::StrCat("a mask of shape ", mask.ToString()));
    }
  }
  WEFT_RETURN_IF_ERROR(b.status());
  while (!inputs.back().valid()) inputs.pop_back();
  const std::vector<bool> wanted = {true, block.wants_present, block.wants_present};
  const Values outputs = b.Ops("", "Attention", std::move(inputs), attributes, wanted);
  WEFT_RETURN_IF_ERROR(b.status());
  return outputs;
}

// ---- Attention: one product for q, k and v.

absl::Status InferAttention(InferenceContext& context) {
  const ValueType& x = context.InputType(0);
  const SymbolicShape& weights = context.InputShape(1);
  const std::vector<int64_t> sizes = context.attributes().Ints("qkv_hidden_sizes");
  for (const int64_t size : sizes) {
    if (size >= 0 && size <= kMaxDim) continue;
    return context.Error(absl::StrCat("qkv_hidden_sizes has ", size, ", expected 0 to ", kMaxDim));
  }
  Dim hidden;
  if (sizes.size() == 3) {
    hidden = Dim(sizes[2]);
  } else if (weights.has_rank() && weights.rank() == 2 && weights.dim(1).is_known()) {
    hidden = Dim(weights.dim(1).size() / 3);
  }
  if (x.shape.has_rank() && x.shape.rank() != 3) {
    return context.Error(
        absl::StrCat("the input is ", x.shape.ToString(), ", expected [batch, length, hidden]"));
  }
  const Dims lead = x.shape.has_rank() ? Dims{x.shape.dim(0), x.shape.dim(1)} : UnknownDims(2);
  context.SetOutput(0, x.dtype, SymbolicShape({lead[0], lead[1], hidden}));
  if (context.HasOutput(1)) context.SetOutput(1, x.dtype, SymbolicShape(UnknownDims(5)));
  return absl::OkStatus();
}

absl::StatusOr<Values> ExpandAttention(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  const SymbolicShape weights = b.type(node.inputs[1]).shape;
  std::vector<int64_t> sizes = node.attributes.Ints("qkv_hidden_sizes");
  if (sizes.size() != 3) {
    if (!weights.has_rank() || weights.rank() != 2 || !weights.dim(1).is_known()) {
      return UnsupportedFusion(node, "a weight of unknown shape");
    }
    sizes.assign(3, weights.dim(1).size() / 3);
  }
  if (node.attributes.Int("do_rotary", 0) != 0) return UnsupportedFusion(node, "do_rotary");
  ValueId product = b.Op("MatMul", {node.inputs[0], node.inputs[1]});
  if (InputOf(node, 2).valid()) product = b.Op("Add", {product, node.inputs[2]});
  Block block;
  block.heads = node.attributes.Int("num_heads", 1);
  block.q = LastAxis(b, product, 0, sizes[0]);
  block.k = LastAxis(b, product, sizes[0], sizes[0] + sizes[1]);
  block.v = LastAxis(b, product, sizes[0] + sizes[1], sizes[0] + sizes[1] + sizes[2]);
  block.mask = InputOf(node, 3);
  block.bias = InputOf(node, 5);
  if (const ValueId past = InputOf(node, 4); past.valid()) {
    block.past_key = b.Op("Gather", {past, b.Constant(Tensor::Scalar<int64_t>(0))});
    block.past_value = b.Op("Gather", {past, b.Constant(Tensor::Scalar<int64_t>(1))});
  }
  block.wants_present = Wants(node, 1);
  WEFT_ASSIGN_OR_RETURN(const Values parts, Attend(context, block));
  Values outputs(node.outputs.size(), kNoValue);
  outputs[0] = parts[0];
  if (block.wants_present) {
    outputs[1] = b.Op(
        "Concat",
        {b.Op("Unsqueeze", {parts[1], b.Ints({0})}), b.Op("Unsqueeze", {parts[2], b.Ints({0})})},
        {{"axis", int64_t{0}}});
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return outputs;
}

const std::vector<DType> kMaskTypes = {DType::kInt32, DType::kInt64, DType::kFloat32,
                                       DType::kFloat16, DType::kBool};

OpSchema WithBlockAttributes(OpSchema schema) {
  return schema.Attr("mask_filter_value", AttributeType::kFloat)
      .Attr("num_heads", AttributeType::kInt, /*required=*/true)
      .Attr("scale", AttributeType::kFloat)
      .Attr("unidirectional", AttributeType::kInt);
}

WEFT_REGISTER_OP(WithBlockAttributes(OpSchema(kMicrosoftDomain, "Attention"))
                     .Input("input", kFloatTypes)
                     .Input("weights", kFloatTypes)
                     .Learnable()
                     .OptionalInput("bias", kFloatTypes)
                     .Learnable()
                     .OptionalInput("mask_index", kMaskTypes)
                     .OptionalInput("past", kFloatTypes)
                     .NeverLearnable()
                     .OptionalInput("attention_bias", kFloatTypes)
                     .OptionalInput("past_sequence_length", {DType::kInt32})
                     .Output("output")
                     .OptionalOutput("present")
                     .Attr("do_rotary", AttributeType::kInt)
                     .Attr("past_present_share_buffer", AttributeType::kInt)
                     .Attr("qkv_hidden_sizes", AttributeType::kInts)
                     .Attr("rotary_embedding_dim", AttributeType::kInt)
                     .Infer(InferAttention)
                     .Expand(ExpandAttention));

// ---- MultiHeadAttention: q, k and v by themselves.

absl::Status InferMultiHead(InferenceContext& context) {
  const ValueType& q = context.InputType(0);
  if (q.shape.has_rank() && q.shape.rank() == 3 && context.HasInput(2)) {
    const SymbolicShape& v = context.InputShape(2);
    const Dim hidden = v.has_rank() && v.rank() == 3   ? v.dim(2)
                       : v.has_rank() && v.rank() == 4 ? ProductOfDims({v.dim(1), v.dim(3)}, 0, 2)
                                                       : Dim();
    context.SetOutput(0, q.dtype, SymbolicShape({q.shape.dim(0), q.shape.dim(1), hidden}));
  } else if (q.shape.has_rank() && q.shape.rank() == 5) {
    const Dim hidden = ProductOfDims({q.shape.dim(2), q.shape.dim(4)}, 0, 2);
    context.SetOutput(0, q.dtype, SymbolicShape({q.shape.dim(0), q.shape.dim(1), hidden}));
  } else {
    context.SetOutput(0, q.dtype, SymbolicShape(UnknownDims(3)));
  }
  for (const int i : {1, 2}) {
    if (context.HasOutput(i)) context.SetOutput(i, q.dtype, SymbolicShape(UnknownDims(4)));
  }
  return absl::OkStatus();
}

// [batch, heads, length, size] as [batch, length, heads * size].
ValueId Pack(GraphBuilder& b, ValueId heads) {
  const ValueId rows = b.Op("Transpose", {heads}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  return b.Op("Reshape", {rows, b.Ints({0, 0, -1})});
}

// Part `part` of [batch, length, heads, parts, size], packed.
ValueId PackedPart(GraphBuilder& b, ValueId parts, int64_t part) {
  const ValueId one =
      b.Op("Gather", {parts, b.Constant(Tensor::Scalar<int64_t>(part))}, {{"axis", int64_t{3}}});
  return b.Op("Reshape", {one, b.Ints({0, 0, -1})});
}

absl::Status ReadOperands(GraphBuilder& b, const Node& node, Block& block) {
  const auto rank = [&](ValueId value) {
    const SymbolicShape& shape = b.type(value).shape;
    return shape.has_rank() ? shape.rank() : -1;
  };
  const ValueId query = node.inputs[0], key = InputOf(node, 1), value = InputOf(node, 2);
  block.q = query;
  if (rank(query) == 5) {
    block.q = PackedPart(b, query, 0);
    block.k = PackedPart(b, query, 1);
    block.v = PackedPart(b, query, 2);
  } else if (key.valid() && rank(key) == 5) {
    block.k = PackedPart(b, key, 0);
    block.v = PackedPart(b, key, 1);
  } else if (key.valid() && value.valid()) {
    block.k = rank(key) == 4 ? Pack(b, key) : key;
    block.v = rank(value) == 4 ? Pack(b, value) : value;
  } else {
    return UnsupportedFusion(node, "this combination of query, key and value");
  }
  return b.status();
}

// The bias of q, k and v behind each other. Keys and values of rank 4 have theirs already.
absl::Status AddBiases(GraphBuilder& b, const Node& node, ValueId bias, Block& block) {
  ValueId* const parts[] = {&block.q, &block.k, &block.v};
  int64_t begin = 0;
  for (ValueId* part : parts) {
    const SymbolicShape& shape = b.type(*part).shape;
    if (!shape.has_rank() || shape.rank() != 3 || !shape.dim(2).is_known()) {
      return UnsupportedFusion(node, "a bias with operands of unknown hidden size");
    }
    const int64_t end = begin + shape.dim(2).size();
    const ValueId original = part == &block.k   ? InputOf(node, 1)
                             : part == &block.v ? InputOf(node, 2)
                                                : kNoValue;
    const bool done =
        original.valid() && b.type(original).shape.has_rank() && b.type(original).shape.rank() == 4;
    if (!done) *part = b.Op("Add", {*part, LastAxis(b, bias, begin, end)});
    begin = end;
  }
  return b.status();
}

absl::StatusOr<Values> ExpandMultiHead(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  Block block;
  block.heads = node.attributes.Int("num_heads", 1);
  WEFT_RETURN_IF_ERROR(ReadOperands(b, node, block));
  if (InputOf(node, 3).valid()) {
    WEFT_RETURN_IF_ERROR(AddBiases(b, node, InputOf(node, 3), block));
  }
  block.mask = InputOf(node, 4);
  block.bias = InputOf(node, 5);
  block.past_key = InputOf(node, 6);
  block.past_value = InputOf(node, 7);
  block.wants_present = Wants(node, 1) || Wants(node, 2);
  WEFT_ASSIGN_OR_RETURN(const Values parts, Attend(context, block));
  Values outputs(node.outputs.size(), kNoValue);
  for (size_t i = 0; i < outputs.size() && i < 3; ++i) {
    if (Wants(node, i)) outputs[i] = parts[i];
  }
  return outputs;
}

WEFT_REGISTER_OP(WithBlockAttributes(OpSchema(kMicrosoftDomain, "MultiHeadAttention"))
                     .Input("query", kFloatTypes)
                     .OptionalInput("key", kFloatTypes)
                     .OptionalInput("value", kFloatTypes)
                     .OptionalInput("bias", kFloatTypes)
                     .Learnable()
                     .OptionalInput("key_padding_mask", kMaskTypes)
                     .OptionalInput("attention_bias", kFloatTypes)
                     .OptionalInput("past_key", kFloatTypes)
                     .NeverLearnable()
                     .OptionalInput("past_value", kFloatTypes)
                     .NeverLearnable()
                     .Output("output")
                     .OptionalOutput("present_key")
                     .OptionalOutput("present_value")
                     .Infer(InferMultiHead)
                     .Expand(ExpandMultiHead));

// ---- RotaryEmbedding: the operands in another order; positions may be one offset.

// [batch, length]: the offset, and the places after it, where position_ids are one number.
ValueId Positions(GraphBuilder& b, ValueId ids, ValueId x) {
  const SymbolicShape& shape = b.type(ids).shape;
  if (!shape.has_rank() || shape.rank() != 1) return ids;
  const int rank = b.type(x).shape.has_rank() ? b.type(x).shape.rank() : 3;
  const ValueId sizes = ShapeOf(b, x);
  const ValueId batch = b.Op("Gather", {sizes, b.Ints({0})});
  const ValueId at = b.Constant(Tensor::Scalar<int64_t>(rank == 4 ? 2 : 1));
  const ValueId length = b.Op("Gather", {sizes, at});
  const ValueId places = b.Op("Range", {b.Constant(Tensor::Scalar<int64_t>(0)), length,
                                        b.Constant(Tensor::Scalar<int64_t>(1))});
  const ValueId row = b.Op("Add", {places, ids});
  const ValueId target =
      b.Op("Concat", {batch, b.Op("Unsqueeze", {length, b.Ints({0})})}, {{"axis", int64_t{0}}});
  return b.Op("Expand", {row, target});
}

absl::StatusOr<Values> ExpandRotary(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  const SymbolicShape x = b.type(node.inputs[0]).shape;
  const SymbolicShape cache = b.type(node.inputs[2]).shape;
  const int64_t turned = node.attributes.Int("rotary_embedding_dim", 0);
  int64_t heads = node.attributes.Int("num_heads", 0);
  if (heads == 0 && x.has_rank() && x.rank() == 3) {
    // The caches hold half a head.
    const bool known = x.dim(2).is_known() && cache.has_rank() && cache.rank() == 2 &&
                       cache.dim(1).is_known() && cache.dim(1).size() > 0;
    if (!known)
      return UnsupportedFusion(node, "a head size that does not follow from the operands");
    heads = x.dim(2).size() / (2 * cache.dim(1).size());
  }
  Attributes attributes = {{"interleaved", node.attributes.Int("interleaved", 0)},
                           {"rotary_embedding_dim", turned}};
  if (heads > 0) attributes.Set("num_heads", heads);
  const ValueId y = b.Op("RotaryEmbedding",
                         {node.inputs[0], node.inputs[2], node.inputs[3],
                          Positions(b, node.inputs[1], node.inputs[0])},
                         attributes);
  WEFT_RETURN_IF_ERROR(b.status());
  return Values{y};
}

WEFT_REGISTER_OP(OpSchema(kMicrosoftDomain, "RotaryEmbedding")
                     .Input("input", kFloatTypes)
                     .Input("position_ids", {DType::kInt64})
                     .Input("cos_cache", kFloatTypes)
                     .NeverLearnable()
                     .Input("sin_cache", kFloatTypes)
                     .NeverLearnable()
                     .Output("output")
                     .Attr("interleaved", AttributeType::kInt)
                     .Attr("is_packed_batching", AttributeType::kInt)
                     .Attr("num_heads", AttributeType::kInt)
                     .Attr("rotary_embedding_dim", AttributeType::kInt)
                     .Attr("scale", AttributeType::kFloat)
                     .Infer(InferLikeFirstInput)
                     .Expand(ExpandRotary));

// ---- EmbedLayerNormalization: tables of words, positions and segments, added and normalized.

absl::Status InferEmbed(InferenceContext& context) {
  const SymbolicShape& ids = context.InputShape(0);
  const ValueType& words = context.InputType(2);
  const Dim hidden = words.shape.has_rank() && words.shape.rank() == 2 ? words.shape.dim(1) : Dim();
  if (ids.has_rank() && ids.rank() != 2) {
    return context.Error(
        absl::StrCat("input_ids are ", ids.ToString(), ", expected [batch, length]"));
  }
  const Dims lead = ids.has_rank() ? ids.dims() : UnknownDims(2);
  const SymbolicShape sum({lead[0], lead[1], hidden});
  context.SetOutput(0, words.dtype, sum);
  if (context.HasOutput(1)) context.SetOutput(1, DType::kInt32, SymbolicShape({lead[0]}));
  if (context.HasOutput(2)) context.SetOutput(2, words.dtype, sum);
  return absl::OkStatus();
}

absl::StatusOr<Values> ExpandEmbed(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  const ValueId ids = node.inputs[0];
  const ValueId sizes = ShapeOf(b, ids);
  ValueId positions = InputOf(node, 8);
  if (!positions.valid()) {
    const ValueId length = b.Op("Gather", {sizes, b.Constant(Tensor::Scalar<int64_t>(1))});
    positions = b.Op("Range", {b.Constant(Tensor::Scalar<int64_t>(0)), length,
                               b.Constant(Tensor::Scalar<int64_t>(1))});
  }
  ValueId sum = b.Op(
      "Add", {b.Op("Gather", {node.inputs[2], ids}), b.Op("Gather", {node.inputs[3], positions})});
  if (InputOf(node, 1).valid() && InputOf(node, 4).valid()) {
    sum = b.Op("Add", {sum, b.Op("Gather", {node.inputs[4], node.inputs[1]})});
  }
  const ValueId y =
      b.Op("LayerNormalization", {sum, node.inputs[5], node.inputs[6]},
           {{"axis", int64_t{-1}}, {"epsilon", node.attributes.Float("epsilon", 1e-12f)}});
  Values outputs(node.outputs.size(), kNoValue);
  outputs[0] = y;
  if (Wants(node, 1)) {
    // How many places of each sample the mask keeps.
    outputs[1] = InputOf(node, 7).valid()
                     ? b.Op("ReduceSum", {node.inputs[7], b.Ints({1})}, {{"keepdims", int64_t{0}}})
                     : b.Op("ConstantOfShape", {b.Op("Gather", {sizes, b.Ints({0})})},
                            {{"value", Tensor::Of<int32_t>(Shape{1}, std::vector<int32_t>{0})}});
  }
  if (Wants(node, 2)) outputs[2] = sum;
  WEFT_RETURN_IF_ERROR(b.status());
  return outputs;
}

WEFT_REGISTER_OP(OpSchema(kMicrosoftDomain, "EmbedLayerNormalization")
                     .Input("input_ids", kIndexTypes)
                     .OptionalInput("segment_ids", kIndexTypes)
                     .Input("word_embedding", kFloatTypes)
                     .Learnable()
                     .Input("position_embedding", kFloatTypes)
                     .Learnable()
                     .OptionalInput("segment_embedding", kFloatTypes)
                     .Learnable()
                     .Input("gamma", kFloatTypes)
                     .Learnable()
                     .Input("beta", kFloatTypes)
                     .Learnable()
                     .OptionalInput("mask", {DType::kInt32})
                     .OptionalInput("position_ids", kIndexTypes)
                     .Output("output")
                     .OptionalOutput("mask_index")
                     .OptionalOutput("embedding_sum")
                     .Attr("epsilon", AttributeType::kFloat)
                     .Attr("mask_index_type", AttributeType::kInt)
                     .Infer(InferEmbed)
                     .Expand(ExpandEmbed));

}  // namespace
}  // namespace weft
